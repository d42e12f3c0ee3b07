/** The samples of a scrape by name and labels, as in the text format of Prometheus. */
export type Scrape = Awaited<ReturnType<typeof scrape>>;

export async function scrape(address: string) {
  const response = await fetch(`${address}/metrics`);
  const text = await response.text();
  if (!response.ok) throw new Error(`${address}/metrics: ${response.status} ${text}`);
  const samples = new Map<string, number>();
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('#')) continue;
    const sample = /^([a-z_:][\w:]*)(\{.*\})? (\S+)$/i.exec(line);
    if (!sample) throw new Error(`not a sample: ${line}`);
    samples.set(`${sample[1]}${sample[2] ?? ''}`, Number(sample[3]));
  }
  return {
    text,
    contentType: response.headers.get('content-type'),
    /** The names of all series, those of histograms with their suffixes. */
    names: new Set([...samples.keys()].map((key) => key.replace(/\{.*/s, ''))),
    value: (sample: string) => samples.get(sample),
    /** All samples of a metric, by the value of one of their labels; sums where several have it. */
    by(name: string, label: string): Record<string, number> {
      const found: Record<string, number> = {};
      for (const [key, value] of samples) {
        if (!key.startsWith(`${name}{`)) continue;
        const at = new RegExp(`[{,]${label}="([^"]*)"`).exec(key)?.[1] ?? '';
        found[at] = (found[at] ?? 0) + value;
      }
      return found;
    },
  };
}
