"""What pyproject.toml cannot say: data/ is installed as ctlib/data, for notebooks that run away from the book."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["ctlib*"]), "ctlib.data"],
    package_dir={"ctlib.data": "data"},
    package_data={"ctlib.data": ["*"]},
)
