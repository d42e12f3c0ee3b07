/** What a chart shows: `bars`, of one measure in each panel; or `curves` on two logarithmic axes. */
export type Chart =
  | { kind: 'bars'; title: string; panels: Panel[] }
  | { kind: 'curves'; title: string; x: string; y: string; series: Series[] };

/** Bars of one measure. `value` is how long, `text` what is written at its end; `ours` stands out. */
export interface Panel {
  title: string;
  rows: { label: string; value: number; text?: string; ours?: boolean }[];
}

/** A curve through points. */
export interface Series {
  name: string;
  points: [x: number, y: number][];
}

const width = 720;
const margin = 20;

/** Colours as the reader's system has it, light or dark; the background is drawn, too, because a page may have another one. */
const style = `
  text { font: 13px system-ui, 'DejaVu Sans', sans-serif; fill: #24292f }
  .title { font-weight: 600; font-size: 15px } .quiet { fill: #57606a; font-size: 12px }
  .ground { fill: #ffffff; stroke: #d0d7de } .grid { stroke: #d8dee4 }
  .ours { fill: #0969da } .other { fill: #afb8c1 }
  .line { fill: none; stroke-width: 2.5; stroke-linejoin: round }
  .c0 { stroke: #0969da } .c1 { stroke: #bc4c00 } .c2 { stroke: #6e7781 } .c3 { stroke: #1a7f37 }
  .d0 { fill: #0969da } .d1 { fill: #bc4c00 } .d2 { fill: #6e7781 } .d3 { fill: #1a7f37 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .quiet { fill: #9198a1 }
    .ground { fill: #0d1117; stroke: #30363d } .grid { stroke: #21262d }
    .ours { fill: #4493f8 } .other { fill: #484f58 }
    .c0 { stroke: #4493f8 } .c1 { stroke: #f0883e } .c2 { stroke: #9198a1 } .c3 { stroke: #3fb950 }
    .d0 { fill: #4493f8 } .d1 { fill: #f0883e } .d2 { fill: #9198a1 } .d3 { fill: #3fb950 }
  }`;

/** A chart as SVG, for a page to embed. The table next to it has the same figures. */
export function svgOf(chart: Chart): string {
  const { height, content } = chart.kind === 'bars' ? bars(chart.panels) : curves(chart);
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escaped(chart.title)}">
<style>${style}
</style>
<rect class="ground" x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="6"/>
${text(margin, 30, chart.title, 'class="title"')}
${content.join('\n')}
</svg>
`;
}

function bars(panels: Panel[]): { height: number; content: string[] } {
  const [left, row] = [260, 24];
  const most = width - left - margin - 90;
  const content: string[] = [];
  let y = 48;
  for (const { title, rows } of panels) {
    content.push(text(margin, y + 13, title, 'class="quiet"'));
    y += 24;
    const longest = Math.max(...rows.map(({ value }) => value), Number.MIN_VALUE);
    for (const { label, value, text: words, ours } of rows) {
      const long = Math.max(2, (value / longest) * most);
      content.push(
        text(left - 10, y + 14, label, 'text-anchor="end"'),
        `<rect class="${ours ? 'ours' : 'other'}" x="${left}" y="${y + 2}" width="${long.toFixed(1)}" height="${row - 8}" rx="2"/>`,
        text(left + long + 8, y + 14, words ?? shown(value)),
      );
      y += row;
    }
    y += 12;
  }
  return { height: y + 4, content };
}

function curves(chart: Extract<Chart, { kind: 'curves' }>): { height: number; content: string[] } {
  const [left, right, top, bottom, height] = [76, width - 190, 74, 330, 382];
  const all = chart.series.flatMap(({ points }) => points);
  const xs = decades(all.map(([x]) => x));
  const ys = decades(all.map(([, y]) => y));
  const at = (value: number, [from, to]: [number, number], start: number, end: number) =>
    start + ((Math.log10(value) - from) / (to - from)) * (end - start);
  const x = (value: number) => at(value, xs, left, right);
  const y = (value: number) => at(value, ys, bottom, top);
  const path = (points: [number, number][]) =>
    points.map(([px, py], i) => `${i === 0 ? 'M' : 'L'}${x(px).toFixed(1)} ${y(py).toFixed(1)}`).join(' ');
  const content = [text(margin, 52, chart.y, 'class="quiet"')];
  for (let power = ys[0]; power <= ys[1]; power++) {
    const height = y(10 ** power).toFixed(1);
    content.push(
      `<line class="grid" x1="${left}" x2="${right}" y1="${height}" y2="${height}"/>`,
      text(left - 8, Number(height) + 4, shown(10 ** power), 'class="quiet" text-anchor="end"'),
    );
  }
  for (let power = xs[0]; power <= xs[1]; power++) {
    content.push(text(x(10 ** power), bottom + 20, shown(10 ** power), 'class="quiet" text-anchor="middle"'));
  }
  content.push(text((left + right) / 2, bottom + 40, chart.x, 'class="quiet" text-anchor="middle"'));

  const ends = chart.series.map(({ points }, i) => ({ i, at: y(points.at(-1)![1]) }));
  // Names stand where their curves end, and apart from one another.
  ends.sort((a, b) => a.at - b.at);
  for (const [n, end] of ends.entries()) if (n > 0) end.at = Math.max(end.at, ends[n - 1]!.at + 17);
  for (const { i, at: height } of ends) {
    const { name, points } = chart.series[i]!;
    content.push(`<path class="line c${i % 4}" d="${path(points)}"/>`);
    for (const [px, py] of points) {
      content.push(`<circle class="d${i % 4}" cx="${x(px).toFixed(1)}" cy="${y(py).toFixed(1)}" r="4"/>`);
    }
    content.push(text(right + 12, height + 4, name));
  }
  return { height, content };
}

/** The powers of ten around all values: at least one apart. */
function decades(values: number[]): [number, number] {
  const from = Math.floor(Math.log10(Math.min(...values)) + 1e-9);
  return [from, Math.max(from + 1, Math.ceil(Math.log10(Math.max(...values)) - 1e-9))];
}

const shown = (value: number) => value.toLocaleString('en', { maximumSignificantDigits: 3 });
const escaped = (words: string) => words.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
const text = (x: number, y: number, words: string, more = '') =>
  `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" ${more}>${escaped(words)}</text>`.replace(' >', '>');
