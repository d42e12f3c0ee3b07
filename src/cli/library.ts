import { type LibraryOptions, startLibrary } from '../library/index.ts';
import { paint, print } from './output.ts';

export interface LibraryVerbOptions {
  port: number;
  adminPort?: number;
  media?: string;
  synthetic?: number;
  seed?: number;
  clientId?: string;
  clientSecret?: string;
  redirectUri?: string[];
  autoConsent?: boolean;
  json?: boolean;
}

/** Runs the library alone, until stopped. */
export async function library(options: LibraryVerbOptions, stop: AbortSignal): Promise<void> {
  const seed = options.seed === undefined ? {} : { seed: options.seed };
  const content: LibraryOptions['content'] =
    options.media !== undefined
      ? { media: options.media }
      : options.synthetic !== undefined
        ? { synthetic: options.synthetic, ...seed }
        : { samples: 300, ...seed };
  const service = await startLibrary({
    port: options.port,
    redirectUris: options.redirectUri ?? ['http://localhost:8080/oauth/callback'],
    content,
    transcodeDelay: 20_000,
    transcriptDelay: 120_000,
    ...(options.adminPort !== undefined && { adminPort: options.adminPort }),
    ...(options.clientId !== undefined && { clientId: options.clientId }),
    ...(options.clientSecret !== undefined && { clientSecret: options.clientSecret }),
    ...(options.autoConsent && { autoConsent: true }),
  });
  const { apiUrl, appUrl, adminUrl, clientId, clientSecret, users } = service;
  if (options.json) {
    print(JSON.stringify({ apiUrl, appUrl, adminUrl, clientId, clientSecret, users }));
  } else {
    print(`${paint('bold', 'The library is running.')} A mirror of it needs:

LIBRARY_API_URL=${apiUrl}
LIBRARY_APP_URL=${appUrl}
LIBRARY_CLIENT_ID=${clientId}
LIBRARY_CLIENT_SECRET=${clientSecret}
`);
    for (const user of users) print(`Sign in as ${user.email} with the password ${user.password}`);
    if (adminUrl) print(`Admin API: ${adminUrl}`);
  }
  if (!stop.aborted) await new Promise((resolve) => stop.addEventListener('abort', resolve, { once: true }));
  await service.close();
}
