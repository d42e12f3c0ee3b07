import { type LibraryOptions, startLibrary } from '../src/library/index.ts';
import { REDIRECT_URI } from '../test/support/library.ts';

let times: number[] = [];

/** The library under measurement, with more options as JSON. It prints its address and, on request, its resource usage. */
const { close, ...library } = await startLibrary({
  redirectUris: [REDIRECT_URI],
  autoConsent: true,
  content: { synthetic: Number(process.argv[2]) },
  ...(JSON.parse(process.argv[3] ?? '{}') as LibraryOptions & { databaseUrl?: never }),
  log: (line) => {
    const { path, ms } = line as { path?: string; ms?: number };
    if (path?.startsWith('/api/v1/companies') && ms !== undefined) times.push(ms);
  },
});
process.send!(library);

process.on('message', (message) => {
  if (message === 'usage') {
    const { user, system } = process.cpuUsage();
    process.send!({ cpu: (user + system) / 1e6, rss: process.memoryUsage().rss, times });
    times = [];
  } else {
    void close().then(() => process.exit());
  }
});
