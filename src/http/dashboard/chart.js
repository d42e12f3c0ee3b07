import { hour } from './format.js';
import uPlot from './vendor/uplot/dist/uPlot.esm.js';

/**
 * @typedef {{ label: string, colour: string, values: number[], bars?: boolean }} Series
 * @typedef {{ times: number[], series: Series[], format: (value: number) => string, withDay: boolean, base: 2 | 10 }} ChartData times in seconds; `base` of the steps of the axis: 2 for bytes
 */

/** Steps of an axis. */
const binarySteps = Array.from({ length: 60 }, (_, i) => 2 ** i);
const decimalSteps = Array.from({ length: 12 }, (_, i) => [1, 2, 5].map((n) => n * 10 ** i)).flat();

const dark = matchMedia('(prefers-color-scheme: dark)');

/** Stacks bars: each is drawn from zero, and later ones cover its lower part. @param {Series[]} series @param {number} at */
function stacked(series, at) {
  const { bars, values } = /** @type {Series} */ (series[at]);
  if (!bars) return values;
  const above = series.slice(at + 1).filter((one) => one.bars);
  return values.map((value, i) => above.reduce((sum, one) => sum + (one.values[i] ?? 0), value));
}

/** A chart over time, as wide as its container. The values at the pointer are written into the element `readout`. */
class TimeChart extends HTMLElement {
  /** @type {ChartData | undefined} */
  #data;
  /** @type {uPlot | undefined} */
  #plot;
  #shape = '';
  #observer = new ResizeObserver(() => this.#resize());
  #recolour = () => {
    this.#shape = '';
    this.#show();
  };

  /** @param {ChartData | undefined} data */
  set data(data) {
    if (data === this.#data) return;
    this.#data = data;
    this.#show();
  }

  connectedCallback() {
    this.#observer.observe(this);
    dark.addEventListener('change', this.#recolour);
    this.#show();
  }

  disconnectedCallback() {
    this.#observer.disconnect();
    dark.removeEventListener('change', this.#recolour);
    this.#plot?.destroy();
    this.#plot = undefined;
    this.#shape = '';
  }

  #resize() {
    const width = this.clientWidth;
    if (this.#plot && width > 0 && width !== this.#plot.width) this.#plot.setSize({ width, height: this.clientHeight });
    else if (!this.#plot) this.#show();
  }

  #show() {
    const data = this.#data;
    if (!data || !this.isConnected || this.clientWidth === 0) return;
    const { times, series, withDay } = data;
    const columns = /** @type {uPlot.AlignedData} */ ([times, ...series.map((_, i) => stacked(series, i))]);
    const shape = `${series.map(({ label }) => label)} ${withDay} ${times.length}`;
    if (this.#plot && shape === this.#shape) {
      this.#plot.setData(columns);
      return;
    }
    this.#shape = shape;
    this.#plot?.destroy();
    this.#plot = new uPlot(this.#options(data), columns, this);
  }

  /** @param {ChartData} data @returns {uPlot.Options} */
  #options({ times, series, withDay, base }) {
    const style = getComputedStyle(this);
    const step = (times[1] ?? 0) - (times[0] ?? 0);
    /** @param {string} name */
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const axis = {
      stroke: colour('soft'),
      font: '12px system-ui, sans-serif',
      grid: { stroke: colour('line'), width: 1 },
      ticks: { show: false },
    };
    return {
      width: this.clientWidth,
      height: this.clientHeight,
      legend: { show: false },
      padding: [8, 20, 0, 0],
      cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
      scales: {
        // Half a step on both sides, so that the first bar and the last are whole.
        x: { range: (_plot, low, high) => [low - step / 2, high + step / 2] },
        y: { range: (_plot, _low, high) => [0, Math.max(high * 1.1, 1)] },
      },
      axes: [
        {
          ...axis,
          grid: { show: false },
          size: 28,
          space: withDay ? 80 : 56,
          values: (_plot, values) => values.map((at) => hour(at * 1000, withDay)),
        },
        {
          ...axis,
          size: base === 2 ? 76 : 44,
          space: 28,
          incrs: base === 2 ? binarySteps : decimalSteps,
          values: (_plot, values) => values.map((value) => this.#data?.format(value) ?? ''),
        },
      ],
      series: [
        {},
        ...series.map(({ label, colour: name, bars }) => ({
          label,
          stroke: colour(name),
          fill: bars ? colour(name) : `color-mix(in srgb, ${colour(name)} 16%, transparent)`,
          width: bars ? 0 : 2,
          points: { show: false },
          paths: /** @type {uPlot.Series.PathBuilder} */ (
            bars ? uPlot.paths.bars?.({ size: [0.72, 40], radius: 0.25 }) : uPlot.paths.spline?.()
          ),
        })),
      ],
      hooks: { setCursor: [(plot) => this.#read(plot.cursor.idx ?? null)] },
    };
  }

  /** @param {number | null} at */
  #read(at) {
    const readout = document.getElementById(this.getAttribute('readout') ?? '');
    const data = this.#data;
    if (!readout || !data) return;
    const time = at === null ? undefined : data.times[at];
    readout.textContent =
      time === undefined
        ? ''
        : [
            hour(time * 1000, data.withDay),
            ...data.series.map(({ label, values }) => `${data.format(values[at ?? 0] ?? 0)} ${label.toLowerCase()}`),
          ].join(' · ');
  }
}

customElements.define('time-chart', TimeChart);
