#include "trireme/train/html/page_style.h"

namespace trireme {

const std::string_view kPageStyle = R"css(
:root { color-scheme: light dark;
  --page: #f4f5f7; --card: #ffffff; --ink: #1c2430; --soft: #5d6877; --line: #e3e6eb;
  --bar: #eceff3;
  --k1: #2563c9; --k2: #d9622b; --k3: #17876d; --k4: #7c52c4; --k5: #b07d12; --k6: #bf3f77;
  --k7: #66768a; }
@media (prefers-color-scheme: dark) { :root {
  --page: #0f1216; --card: #181d23; --ink: #e6eaf0; --soft: #98a4b3; --line: #2a313a;
  --bar: #242b33;
  --k1: #5b9bf5; --k2: #f08a54; --k3: #3fb896; --k4: #a98aec; --k5: #d3a53c; --k6: #e67aa9;
  --k7: #8494a8; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans",
    sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 36px 20px 48px; }
header { margin-bottom: 22px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 6px; letter-spacing: -0.01em; }
h2 { font-size: 15px; margin: 0 0 10px; font-weight: 650; }
h3 { font-size: 14px; margin: 14px 0 4px; font-weight: 600; }
h3 small, h2 small { color: var(--soft); font-weight: 400; font-size: 13px; margin-left: 8px; }
header p, footer { color: var(--soft); margin: 0; }
footer { font-size: 13px; margin-top: 22px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 18px 20px;
  margin-bottom: 16px; min-width: 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px;
  margin-bottom: 16px; }
.tiles div { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 12px 16px; }
.tiles b { display: block; font-size: 22px; line-height: 1.3; font-weight: 650;
  font-variant-numeric: tabular-nums; }
.tiles span { color: var(--soft); font-size: 13px; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 0 16px;
  align-items: start; }
.pair > div { min-width: 0; }
@media (max-width: 560px) { .pair { grid-template-columns: minmax(0, 1fr); } }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(300px, 100%), 1fr)); gap: 0 36px;
  margin: 0; }
dl div { display: flex; gap: 16px; justify-content: space-between;
  border-bottom: 1px solid var(--line);
  padding: 5px 0; min-width: 0; }
dl div.wide { grid-column: 1 / -1; }
dl div:last-child { border-bottom: 0; }
dt { color: var(--soft); white-space: nowrap; }
dl div.wide dt { min-width: 8em; }
dd { margin: 0; text-align: right; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
dl div.wide dd { text-align: left; font: 13px/1.6 ui-monospace, "DejaVu Sans Mono", monospace;
  flex: 1; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 13px; color: var(--soft);
  margin-bottom: 4px; }
.legend i, .parts i { display: inline-block; width: 10px; height: 10px; border-radius: 3px;
  margin-right: 7px;
  background: currentColor; }
.none { color: var(--soft); margin: 8px 0; }
.c0 { color: var(--bar); } .bar .c0 span { color: var(--soft); }
.c1 { color: var(--k1); } .c2 { color: var(--k2); } .c3 { color: var(--k3); }
  .c4 { color: var(--k4); }
.c5 { color: var(--k5); } .c6 { color: var(--k6); } .c7 { color: var(--k7); }
.s1 { color: color-mix(in srgb, var(--k1) 80%, var(--card)); }
.s2 { color: color-mix(in srgb, var(--k1) 62%, var(--card)); }
.s3 { color: color-mix(in srgb, var(--k1) 46%, var(--card)); }
.s4 { color: color-mix(in srgb, var(--k1) 34%, var(--card)); }
svg.chart { display: block; width: 100%; height: auto; touch-action: pan-y; }
figure { margin: 0; }
svg.narrow { display: none; }
svg text { font-size: 12px; fill: var(--soft); font-variant-numeric: tabular-nums; }
svg .grid { stroke: var(--line); } svg .axis { stroke: var(--soft); stroke-opacity: 0.5; }
svg .line { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round;
  stroke-linecap: round; }
svg .raw { stroke-width: 1; stroke-opacity: 0.28; }
svg circle { fill: currentColor; stroke: var(--card); stroke-width: 1.5; }
div.wide { overflow-x: auto; }
svg.timeline { display: block; width: 100%; min-width: 860px; height: auto; }
svg.timeline.narrow { display: none; min-width: 0; }
svg.timeline rect, svg.area path { fill: currentColor; }
svg.timeline g text { fill: #fff; text-anchor: middle; }
svg.area { width: 100%; height: auto; vertical-align: top; }
svg .limit { stroke: var(--k2); stroke-dasharray: 6 4; }
svg .cursor { stroke: var(--soft); stroke-dasharray: 3 3; pointer-events: none; }
.tip { position: fixed; z-index: 1; pointer-events: none; background: var(--card);
  color: var(--ink);
  border: 1px solid var(--line); border-radius: 8px; padding: 6px 10px; font-size: 13px;
  box-shadow: 0 4px 14px rgb(0 0 0 / 0.18); font-variant-numeric: tabular-nums; }
.tip b { display: block; font-weight: 600; }
.tip i { display: inline-block; width: 8px; height: 8px; border-radius: 2px;
  background: currentColor;
  margin-right: 6px; }
.bar { display: flex; gap: 2px; height: 30px; border-radius: 6px; overflow: hidden;
  background: var(--bar);
  margin-bottom: 10px; }
.bar div { background: currentColor; min-width: 1px; overflow: hidden; }
.bar span { display: block; padding: 0 8px; line-height: 30px; font-size: 12px; font-weight: 600;
  color: #fff; white-space: nowrap; text-overflow: ellipsis; overflow: hidden; }
.bar .s2 span, .bar .s3 span, .bar .s4 span { color: var(--ink); }
@media (prefers-color-scheme: dark) { .bar span { color: #10151b; } }
table { border-collapse: collapse; width: 100%; font-size: 14px;
  font-variant-numeric: tabular-nums; }
td { padding: 4px 0; border-bottom: 1px solid var(--line); }
td + td { text-align: right; color: var(--soft); width: 7em; white-space: nowrap; }
tr:last-child td { border-bottom: 0; }
.parts td:first-child { color: var(--ink); }
table.cells th { text-align: left; font-weight: 600; font-size: 13px; color: var(--soft);
  padding: 4px 14px 4px 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
table.cells td { text-align: left; width: auto; color: var(--ink); padding: 4px 14px 4px 0; vertical-align: top; }
table.cells td:first-child { min-width: 11em; overflow-wrap: anywhere; }
table.cells .n { text-align: right; padding-right: 0; padding-left: 12px; }
table.cells .text { white-space: normal; }
details { border-top: 1px solid var(--line); padding: 6px 0; } summary { cursor: pointer; }
.level { border: 1px solid var(--line); border-radius: 8px; padding: 10px 12px; margin-top: 8px; }
.level b { margin-right: 8px; } .level small { color: var(--soft); font-size: 13px; }
.chip { display: inline-block; border-radius: 6px; padding: 0 8px; margin: 2px 6px 2px 0; font-size: 13px;
  background: var(--bar); color: var(--ink); }
.devices { display: flex; flex-wrap: wrap; gap: 4px; margin-top: 8px; }
.devices i { width: 22px; height: 22px; border-radius: 4px; background: var(--k1); }
.devices i.free { background: var(--bar); }
.note { color: var(--soft); font-size: 13px; margin: 10px 0 0; }
pre { margin: 0 0 12px; padding: 12px 14px; border-radius: 8px; background: var(--page);
  white-space: pre-wrap;
  overflow-wrap: anywhere; font: 13px/1.6 ui-monospace, "DejaVu Sans Mono", monospace; }
pre:last-child { margin-bottom: 0; }
pre b { color: var(--k1); font-weight: 600; }
@media (max-width: 560px) { svg.roomy { display: none; } svg.narrow { display: block; }
  svg.timeline.roomy { display: none; } svg.timeline.narrow { display: block; }
  table.cells th { white-space: normal; vertical-align: bottom; }
  main { padding: 20px 10px 32px; } section { padding: 14px 12px; }
  h2 small { display: block; margin: 2px 0 0; }
  dl div.wide { display: block; } .tiles b { font-size: 19px; } table.cells { font-size: 13px; }
  table.cells td:first-child { min-width: 8em; } table.cells .n { padding-left: 8px; } }
@media print { section, .tiles div { break-inside: avoid; } body { background: none; } }
)css";

const std::string_view kPageScript = R"js(
document.querySelectorAll('svg.chart').forEach(svg => {
  const c = JSON.parse(svg.dataset.chart);
  const names = [...svg.parentElement.firstElementChild.children].map(e => e.textContent);
  const lines = c.lines.filter(l => l.points.length);
  const cursor = document.createElementNS('http://www.w3.org/2000/svg', 'line');
  cursor.setAttribute('class', 'cursor');
  cursor.setAttribute('y1', c.top);
  cursor.setAttribute('y2', c.top + c.height);
  const tip = document.createElement('div');
  tip.className = 'tip';
  const nearest = (points, x) => {
    let low = 0, high = points.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (points[middle][0] < x) low = middle + 1; else high = middle;
    }
    return low > 0 && x - points[low - 1][0] < points[low][0] - x ? points[low - 1] : points[low];
  };
  svg.addEventListener('pointermove', event => {
    const box = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    const share = ((event.clientX - box.left) * scale - c.left) / c.width;
    if (share < 0 || share > 1) return hide();
    const x = c.x[0] + share * (c.x[1] - c.x[0]);
    const step = nearest(lines[0].points, x)[0];
    const at = c.left + (step - c.x[0]) / (c.x[1] - c.x[0]) * c.width;
    cursor.setAttribute('x1', at);
    cursor.setAttribute('x2', at);
    svg.append(cursor);
    tip.replaceChildren();
    const head = document.createElement('b');
    head.textContent = 'step ' + step.toLocaleString('en');
    tip.append(head);
    lines.forEach((line, i) => {
      const row = document.createElement('div');
      const mark = document.createElement('i');
      mark.className = 'c' + line.color;
      row.append(mark, names[i] + ' ' + nearest(line.points, step)[1].toLocaleString('en',
        { maximumSignificantDigits: 5 }));
      tip.append(row);
    });
    document.body.append(tip);
    const right = event.clientX + 14 + tip.offsetWidth;
    const left = right > innerWidth ? event.clientX - 14 - tip.offsetWidth : event.clientX + 14;
    tip.style.left = left + 'px';
    tip.style.top = event.clientY + 14 + 'px';
  });
  const hide = () => { cursor.remove(); tip.remove(); };
  svg.addEventListener('pointerleave', hide);
});
)js";

}  // namespace trireme
