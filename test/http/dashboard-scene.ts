import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Page } from 'puppeteer-core';
import { startChromium } from '../support/chromium.ts';
import { handsOn, openPage } from '../support/dashboard.ts';
import { newScene } from '../support/scene.ts';

/** A directory for pictures of every view; without it, none are taken. */
const PICTURES = process.env.DASHBOARD_PICTURES;

type Hands = ReturnType<typeof handsOn>;
export type Dashboard = Awaited<ReturnType<typeof openDashboard>>;

/** A scene with the project `campaign`, a browser, and its page. */
export async function openDashboard() {
  const [scene, chrome] = await Promise.all([
    newScene({
      environment: {
        ...{ CONNECTION_CONCURRENCY: '2', GONE_RETENTION: '30d', SEARCH_TRANSCRIPTS: 'true' },
        WEBHOOK_ALLOW_PRIVATE: 'true',
      },
      library: { transcriptDelay: 600_000 },
    }),
    startChromium(),
  ]);
  await scene.admin.addProject({ id: 'campaign', companyId: 'acme', name: 'Campaign' });
  const opened = await openPage(await chrome.createBrowserContext(), { width: 1280 });
  return {
    scene,
    chrome,
    ...opened,
    hands: handsOn(opened),

    async close(): Promise<void> {
      await chrome.close();
      await scene.close();
    },
  };
}

/** The hands on a page that is opened before the tests. */
export const handsOnLater = (hands: () => Hands): Hands => ({
  text: () => hands().text(),
  focused: () => hands().focused(),
  dialogs: () => hands().dialogs(),
  press: (label) => hands().press(label),
  tabTo: (role, name) => hands().tabTo(role, name),
  shows: (words) => hands().shows(words),
});

/** Takes a picture of the whole page, if there is a directory for pictures. */
export async function takePicture(page: Page, name: string): Promise<void> {
  if (PICTURES === undefined) return;
  await mkdir(PICTURES, { recursive: true });
  await page.screenshot({ path: join(PICTURES, `${name}.png`) as `${string}.png`, fullPage: true });
}
