import { reasonOf } from '../floor/errors.ts';
import { type Finding, findingsOn } from '../floor/finding.ts';

const { note, ok } = findingsOn('configuration');
const what = 'PUBLIC_URL';

/**
 * Whether connect links lead to asset-mirror, which listens at `localUrl`. Before the first start, no answer is not an
 * error.
 */
export async function probePublicUrl(
  { publicUrl, localUrl }: { publicUrl: string; localUrl: string },
  stop: AbortSignal,
): Promise<Finding> {
  const answer = await request(publicUrl, stop);
  if (answer === 'asset-mirror') return ok(what, `${publicUrl} leads to asset-mirror`);
  if (answer.status !== undefined && answer.status < 500) {
    return note(what, `another program answers at ${publicUrl} (${answer.status})`, remedy);
  }
  if ((await request(localUrl, stop)) === 'asset-mirror') {
    const found = `asset-mirror runs at ${localUrl}, but ${publicUrl} does not lead there (${answer.reason})`;
    return note(what, found, `${remedy}; ignore this if only this machine cannot reach ${publicUrl}`);
  }
  if (publicUrl.startsWith('http://localhost') && new URL(publicUrl).port !== new URL(localUrl).port) {
    return note(what, `is ${publicUrl}, but asset-mirror will listen at ${localUrl}`, remedy);
  }
  return ok(what, `nothing answers at ${publicUrl} yet`);
}

const remedy = 'connect links use PUBLIC_URL: correct it, or the proxy';

type Answer = 'asset-mirror' | { status?: number; reason: string };

async function request(url: string, stop: AbortSignal): Promise<Answer> {
  try {
    const signal = AbortSignal.any([stop, AbortSignal.timeout(5000)]);
    const response = await fetch(`${url}/healthz`, { redirect: 'manual', signal });
    const body = (await response.json().catch(() => undefined)) as { status?: string } | undefined;
    if (body?.status === 'ok') return 'asset-mirror';
    return { status: response.status, reason: `it answers ${response.status}` };
  } catch (error) {
    return { reason: reasonOf((error as Error).cause ?? error) };
  }
}
