import { type Dispatcher, request } from 'undici';
import { Disconnected, diagnosisOf, namingSetting, RetryLater, reasonOf } from '../floor/errors.ts';
import { clockFinding, type Finding, findingsOn } from '../floor/finding.ts';
import type { LibraryClient } from './client.ts';
import { closeConnection, follow } from './follow-link.ts';
import type { LinkGuard } from './link-guard.ts';
import type { ApiAsset } from './schemas.ts';

const area = 'library' as const;
const { note, ok, wrong } = findingsOn(area);

/** Calls the API with the token of a connection, refreshed if need be. */
export type WithToken = <T>(call: (token: string) => Promise<T>) => Promise<T>;

interface Probe {
  apiUrl: string;
  appUrl: string;
  dispatcher: Dispatcher;
  signal: AbortSignal;
}

/** How links are followed: as for downloads. */
interface LinkProbe {
  linkDispatcher: Dispatcher;
  guard: LinkGuard;
}

/** Whether the address is a library that accepts this app. Needs no token. Returns false if further probes make no sense. */
export async function* probeService(
  options: Probe & { appAccepted: () => Promise<boolean> },
): AsyncGenerator<Finding, boolean> {
  const { apiUrl, dispatcher, signal } = options;
  const [sent, began] = [Date.now(), performance.now()];
  let answer: Dispatcher.ResponseData;
  try {
    answer = await request(`${apiUrl}/api/v1/me`, { dispatcher, signal, headersTimeout: 10_000 });
    await answer.body.dump();
  } catch (error) {
    yield unreached('API', error, 'LIBRARY_API_URL');
    return false;
  }
  const ms = Math.round(performance.now() - began);
  // The spec does not say how the API refuses a request without a token.
  const isRefused = answer.statusCode >= 400 && answer.statusCode < 500 && answer.statusCode !== 404;
  if (!isRefused) {
    const found = `answers ${answer.statusCode} instead of 401 without a token`;
    yield wrong('API', found, 'correct LIBRARY_API_URL: it is the base address, without /api/v1');
    return false;
  }
  yield ok('API', `answers in ${Math.max(1, ms)} ms`);
  const theirs = Date.parse(String(answer.headers.date ?? ''));
  if (!Number.isNaN(theirs)) yield clockFinding(area, theirs + 500 - (sent + ms / 2), 'the library');

  try {
    yield (await options.appAccepted())
      ? ok('app', 'the library accepts the client_id and its secret')
      : wrong(
          'app',
          'the library refuses the client_id or its secret',
          'correct LIBRARY_CLIENT_ID and LIBRARY_CLIENT_SECRET',
        );
  } catch (error) {
    yield note('app', `could not be checked: ${reasonOf(error)}`, 'check the library, and run this again');
  }
  try {
    const page = await request(options.appUrl, { dispatcher, signal, headersTimeout: 10_000 });
    await page.body.dump();
    yield page.statusCode < 500
      ? ok('sign-in', 'the address of the app answers')
      : note('sign-in', `answers ${page.statusCode}`, 'check LIBRARY_APP_URL: it is the address where users sign in');
  } catch (error) {
    yield unreached('sign-in', error, 'LIBRARY_APP_URL');
  }
  return true;
}

/** The token of a connection, its `/me`, and a download (spec, section 4.7). */
export async function* probeConnection(
  options: Probe & LinkProbe & { connectionId: string; client: LibraryClient; withToken: WithToken },
): AsyncGenerator<Finding> {
  const { client, withToken, connectionId, signal } = options;
  let companies: { id: string }[];
  try {
    const me = await withToken((token) => client.me({ token, signal }));
    companies = me.companies;
    yield ok('token', `the token of ${connectionId} is accepted`);
    const some = `${companies.length} ${companies.length === 1 ? 'company' : 'companies'} can be read`;
    if (companies.length > 0) yield ok('/me', some);
    else yield note('/me', some, 'the user picks companies when connecting: asset-mirror connect-link');
  } catch (error) {
    const again = `asset-mirror connect-link --connection ${connectionId}`;
    if (error instanceof Disconnected) yield wrong('token', reasonOf(error), again);
    else if (error instanceof RetryLater && error.reason.code === 'tokens_unreadable') {
      yield wrong('token', reasonOf(error), 'add the key that encrypted it to ENCRYPTION_KEYS again');
    } else yield wrong('token', reasonOf(error), 'check the library; the connection is not lost');
    return;
  }

  try {
    let ready: ApiAsset | undefined;
    for (const { id: companyId } of companies.slice(0, 20)) {
      const { assets } = await withToken((token) => client.listAssets({ token, signal, companyId }));
      ready = assets.find(({ status, size }) => status === 'ready' && (size ?? 0) > 1);
      if (ready) break;
    }
    if (ready) yield* probeDownload({ ...options, assetId: ready.id });
    else yield note('download', 'not tried: no asset is ready', 'run this again when there is one');
  } catch (error) {
    yield wrong('download', reasonOf(error), 'check the library, and run this again');
  }
}

async function* probeDownload(
  options: Probe & LinkProbe & { assetId: string; client: LibraryClient; withToken: WithToken },
): AsyncGenerator<Finding> {
  const { client, assetId, signal, appUrl } = options;
  const { download } = await options.withToken((token) => client.getAsset({ token, signal, assetId }));
  let link = download?.url;
  if (!link) {
    yield note('download', `asset ${assetId} has no link`, 'run this again when another asset is ready');
    return;
  }
  let answer = await first(link, options, appUrl);
  // If the original of a video no longer exists, its rendition is downloaded.
  if (answer.status === 404 && download?.mp4Url) {
    link = download.mp4Url;
    answer = await first(link, options, appUrl);
  }
  if (answer.status !== 200 && answer.status !== 206) {
    const found = `a download with the Referer is answered ${answer.status}`;
    yield answer.status === 401 || answer.status === 403
      ? wrong('Referer', found, `LIBRARY_APP_URL has to be exactly what the library expects; it is ${appUrl}`)
      : wrong('download', found, `check asset ${assetId} in the library, and run this again`);
    return;
  }
  const without = await first(link, options, undefined);
  yield without.status >= 400
    ? ok('Referer', `accepted; a download without it is refused (${without.status})`)
    : note('Referer', 'not required', 'links work for anyone who has them: inform the operator of the library');

  const begins = 'interrupted downloads start over: large files take longer';
  if (answer.status === 200) yield note('Range', 'ignored', begins);
  else if (!/^bytes 0-0\/\d+$/.test(answer.contentRange)) {
    yield note('Range', `answered with Content-Range ${answer.contentRange || 'missing'}`, begins);
  } else if (!/^"/.test(answer.etag)) {
    yield note('Range', answer.etag ? 'works, with a weak ETag' : 'works, without an ETag', begins);
  } else yield ok('Range', 'works, and the ETag identifies the version', 'an interrupted download resumes');
}

/** Requests the first byte behind a link. */
async function first(url: string, options: Probe & LinkProbe, referer: string | undefined) {
  const { linkDispatcher: dispatcher, guard, signal } = options;
  const answer = await follow({ dispatcher, guard, referer, stallMs: 10_000 }, url, signal, { range: 'bytes=0-0' });
  // The answer may be the whole file, which is not needed.
  closeConnection(answer);
  const { statusCode, headers } = answer;
  return { status: statusCode, etag: String(headers.etag ?? ''), contentRange: String(headers['content-range'] ?? '') };
}

function unreached(what: string, error: unknown, setting: string): Finding {
  const { found, remedy } = diagnosisOf(namingSetting(error, setting)) ?? {
    found: reasonOf(error),
    remedy: `check the network, or correct ${setting}`,
  };
  return wrong(what, found, remedy);
}
