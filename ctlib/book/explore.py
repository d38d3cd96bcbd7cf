"""One time step to drag through: the field, its attention kernel and both constraint sets, from the numbers of a run."""

from __future__ import annotations

import json
from html import escape

import torch
from IPython.display import HTML
from jaxtyping import Float
from torch import Tensor


def time_step(
    states: list[Float[Tensor, "N_x N_y"]], score: Float[Tensor, "N_y N_y"], substeps: list[str], caption: str
) -> HTML:
    """An interactive figure of one time step; it needs no network, and keys move it as well as a pointer does.

    Between two states u is on the straight line that joins them: for an explicit substep that is a smaller Δt, for a
    projection the shortest way to the set. The kernel is computed from u as it is shown: softmax of u M uᵀ.

    Arguments:
        states: u⁰ … u^M, the state before the step and after each of its M substeps.
        score: M, the bilinear form of the score, with all its factors.
        substeps: what each substep does, M of them.
        caption: the finding.
    """
    if len(substeps) != len(states) - 1:
        raise ValueError(f"{len(states)} states are joined by {len(states) - 1} substeps; {len(substeps)} are named")
    rounded = [torch.round(u.double(), decimals=3).tolist() for u in states]
    data = json.dumps({"states": rounded, "score": torch.round(score.double(), decimals=5).tolist(), "names": substeps})
    panels = "".join(
        f'<div><p>{title}</p><{tag} class="{name}" role="img" aria-label="{escape(told)}"></{tag}><small>{axes}</small></div>'
        for name, tag, title, told, axes in _PANELS
    )
    return HTML(
        f'<figure class="time-step"><label hidden>time <em>t</em> '
        f'<input type="range" min="0" max="{len(substeps)}" step="0.05" value="0" aria-describedby="time-step-told"></label>'
        f'<p class="told" id="time-step-told" role="status"></p><div class="panels">{panels}</div>'
        f"<figcaption>{escape(caption)}</figcaption>"
        f'<script type="application/json">{data}</script></figure><style>{_STYLE}</style><script>{_SCRIPT}</script>'
    )


_PANELS = [
    ("field", "canvas", "the field <em>u</em>(<em>x</em>, <em>y</em>, <em>t</em>)",
     "heat map of the field, one row a token, one column a feature", "across: feature <em>y</em>; down: token <em>x</em>"),
    ("kernel", "canvas", "its attention kernel <em>γ</em>(<em>x</em>, <em>x̃</em>; <em>u</em>)",
     "heat map of the attention kernel, one row a token, one column a token that it reads",
     "across: token <em>x̃</em> that is read; down: token <em>x</em>"),
    ("sphere", "svg", "<em>S</em>₁: mean 0, variance 1",
     "one point a token, at its mean and its standard deviation; a ring marks the set",
     "one point a token; across: its mean; up: its standard deviation; ring: the set"),
    ("cone", "svg", "<em>S</em>₂: nothing below 0",
     "histogram of all values of the field, those below zero in another colour",
     "how often each value occurs; orange: outside the set"),
]  # fmt: skip

_STYLE = """.time-step .panels{display:grid;grid-template-columns:repeat(auto-fit,minmax(15rem,1fr));gap:.8rem;background:#fff;
color:#1f2937;padding:.8rem;border-radius:6px}.time-step .panels p{margin:0 0 .3rem;font-size:.95rem}
.time-step small{color:#4b5563;display:block;line-height:1.3}
.time-step canvas,.time-step svg{display:block;width:100%}.time-step canvas{height:11rem;image-rendering:pixelated}
.time-step label:not([hidden]){display:flex;gap:.8rem;align-items:center}.time-step input{flex:1;min-width:0}
.time-step .told{margin:.3rem 0 .6rem;min-height:3.4em;font-variant-numeric:tabular-nums}
.time-step figcaption{margin-top:.5rem}"""

_SCRIPT = r"""for (const box of document.querySelectorAll(".time-step:not([data-ready])")) {
  box.dataset.ready = "";
  const {states, score, names} = JSON.parse(box.querySelector("script").textContent);
  const slider = box.querySelector("input"), steps = names.length, part = name => box.querySelector("." + name);
  const all = states.flat(2), top = Math.max(...all.map(Math.abs));
  const rowMean = r => r.reduce((a, b) => a + b, 0) / r.length;
  const rowStd = r => { const m = rowMean(r); return Math.sqrt(rowMean(r.map(v => (v - m) ** 2))); };
  const rows = states.flat(), wide = Math.max(...rows.map(r => Math.abs(rowMean(r)))) * 1.1;
  const high = Math.max(...rows.map(rowStd)) * 1.1, clamp = v => Math.max(0, Math.min(1, v));
  const mix = (a, b, w) => a.map((v, i) => Math.round(v + (b[i] - v) * clamp(w)));
  const signed = v => mix([255, 255, 255], v > 0 ? [178, 24, 43] : [33, 102, 172], Math.sqrt(Math.abs(v) / top));
  const blue = v => mix([255, 255, 255], [0, 64, 128], v);
  const paint = (canvas, table, colour) => {
    canvas.width = table[0].length; canvas.height = table.length;
    const pixels = table.flatMap(row => row.flatMap(v => [...colour(v), 255]));
    canvas.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(pixels), canvas.width), 0, 0);
  };
  const text = (x, y, what, anchor = "middle") =>
    `<text x="${x}" y="${y}" text-anchor="${anchor}" font-size="11" fill="#374151">${what}</text>`;
  const line = (x1, y1, x2, y2) => `<path d="M${x1} ${y1}L${x2} ${y2}" stroke="#9ca3af" fill="none"/>`;
  const show = () => {
    const t = Number(slider.value), m = Math.min(Math.floor(t), steps - 1), w = t - m;
    const u = states[m].map((row, i) => row.map((v, j) => v + w * (states[m + 1][i][j] - v)));
    paint(part("field"), u, signed);
    const uM = u.map(row => score[0].map((_, j) => row.reduce((a, v, i) => a + v * score[i][j], 0)));
    const gamma = uM.map(q => {
      const s = u.map(k => q.reduce((a, v, i) => a + v * k[i], 0)), peak = Math.max(...s);
      const e = s.map(v => Math.exp(v - peak)), sum = e.reduce((a, b) => a + b);
      return e.map(v => v / sum);
    });
    paint(part("kernel"), gamma, v => blue(Math.sqrt(v)));
    const means = u.map(rowMean), stds = u.map(rowStd);
    const px = v => 160 + 140 * v / wide, py = v => 150 - 130 * v / high;
    part("sphere").setAttribute("viewBox", "0 0 320 176");
    part("sphere").innerHTML = line(20, 150, 300, 150) + line(160, 150, 160, 15) + text(160, 168, "0") +
      text(300, 168, wide.toFixed(1)) + text(20, 168, "−" + wide.toFixed(1)) + text(146, py(1) + 4, "1", "end") +
      means.map((v, i) => `<circle cx="${px(v)}" cy="${py(stds[i])}" r="4" fill="#0072B2" fill-opacity=".55"/>`).join("") +
      `<circle cx="${px(0)}" cy="${py(1)}" r="8" fill="none" stroke="#D55E00" stroke-width="2"/>`;
    const bins = Array(40).fill(0), values = u.flat();
    for (const v of values) bins[Math.min(39, Math.max(0, Math.floor(20 + 20 * v / top)))]++;
    const tallest = Math.max(...bins);
    part("cone").setAttribute("viewBox", "0 0 320 176");
    part("cone").innerHTML = bins.map((n, i) => { const h = 130 * n / tallest;
      return `<rect x="${20 + 7 * i}" y="${150 - h}" width="6" height="${h}" fill="${i < 20 ? "#D55E00" : "#0072B2"}"/>`;
    }).join("") + line(20, 150, 300, 150) + text(160, 168, "0") + text(300, 168, top.toFixed(1)) +
      text(20, 168, "−" + top.toFixed(1));
    const far1 = Math.sqrt(rowMean(means.map((v, i) => v * v + (stds[i] - 1) ** 2)));
    const far2 = Math.sqrt(rowMean(values.map(v => Math.min(v, 0) ** 2)));
    const below = Math.round(100 * values.filter(v => v < 0).length / values.length);
    const told = `t = ${t.toFixed(2)}/${steps}, ${w ? `in substep ${m + 1}: ${names[m]}` : t ? `after substep ${t}: ${names[t - 1]}` : "the input"}. ` +
      `Distance to S₁ ${far1.toFixed(2)}, to S₂ ${far2.toFixed(2)}; ${below} % of the values are below 0.`;
    part("told").textContent = told.replace(/\.00\//, "/");
    slider.setAttribute("aria-valuetext", part("told").textContent);
  };
  slider.parentElement.hidden = false;
  slider.addEventListener("input", show);
  show();
}"""
