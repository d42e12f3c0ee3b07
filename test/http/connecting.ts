import { randomUUID } from 'node:crypto';
import { newBrowser } from '../support/browser.ts';
import type { Stage } from '../support/stage.ts';

/** What users do to connect on a stage, which is made before the tests. */
export function connecting(stage: () => Stage) {
  const linkFor = async (connectionId?: string): Promise<string> =>
    (await stage().mirror.api('POST', '/connect-links', { connectionId })).url;
  const connections = async (): Promise<{ id: string; user: { id: string } }[]> =>
    (await stage().mirror.api('GET', '/connections')).connections;

  /** A user of the library who has not connected. */
  async function somebody(): Promise<string> {
    const userId = `user-${randomUUID().slice(0, 8)}`;
    await stage().admin.addUser({ id: userId, name: `Ms ${userId}`, email: `${userId}@example.com` });
    await stage().admin.addCompany({ id: `company of ${userId}`, name: `Firm of ${userId}`, userIds: [userId] });
    return userId;
  }

  /** A browser after the consent, and the address of the callback. */
  async function consented(userId: string, link?: string) {
    const browser = newBrowser();
    const consent = (await browser.get(link ?? (await linkFor()))).headers.get('location');
    const answer = await browser.get(`${consent}&login_hint=${userId}`);
    return { browser, back: answer.headers.get('location')! };
  }

  return { linkFor, connections, somebody, consented };
}

/** The status and the text of a page. */
export const text = async (response: Response) => ({ status: response.status, text: await response.text() });

/** The address behind the button of a page. */
export function button(page: string): string {
  const [, href] = /<a class="button" href="([^"]+)">Try again<\/a>/.exec(page) ?? [];
  return href!.replaceAll('&amp;', '&');
}
