import type { Browser, BrowserContext, Page } from 'puppeteer-core';
import { flawsOf } from './chromium.ts';
import { until } from './until.ts';

interface Spoken {
  role: string;
  name?: string;
  focused?: boolean;
  children?: Spoken[];
}

export async function dress(on: Page, { width, isDark = false }: { width: number; isDark?: boolean }): Promise<void> {
  await on.setViewport({ width, height: width < 500 ? 780 : 900, deviceScaleFactor: width < 500 ? 2 : 1 });
  await on.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: isDark ? 'dark' : 'light' }]);
}

/** A page, and the problems that the browser reports about it: errors, and violations of the policy. */
export async function openPage(context: Browser | BrowserContext, screen: { width: number }) {
  const page = await context.newPage();
  page.setDefaultTimeout(180_000);
  const complaints: string[] = [];
  await dress(page, screen);
  page.on('console', (message) => {
    if (['error', 'warn'].includes(message.type()))
      complaints.push(`${message.text()} ${message.location().url ?? ''}`);
  });
  page.on('pageerror', (error) => complaints.push(String(error)));
  return { page, complaints };
}

/** The problems of the page on each of these screens; the first one stays. */
export async function flawsOn(page: Page, screens: { width: number; isDark?: boolean }[]): Promise<string[]> {
  const found: string[] = [];
  for (const screen of screens) {
    await dress(page, screen);
    found.push(...(await flawsOf(page)).map((flaw) => `${screen.width}: ${flaw}`));
  }
  await dress(page, screens[0]!);
  return found;
}

export async function signIn(page: Page, publicUrl: string): Promise<void> {
  await page.goto(`${publicUrl}/`);
  await page.type('input[name=token]', 'the-token-of-the-operators');
  await Promise.all([page.waitForNavigation(), page.keyboard.press('Enter')]);
}

/** What an operator does and sees, with a keyboard and a screen reader. */
export function handsOn({ page, complaints }: Awaited<ReturnType<typeof openPage>>) {
  const text = (): Promise<string> => page.evaluate('document.body.innerText') as Promise<string>;

  /** The page as screen readers get it. */
  async function spoken(): Promise<Spoken[]> {
    const all = (node: Spoken): Spoken[] => [node, ...(node.children ?? []).flatMap(all)];
    return all((await page.accessibility.snapshot()) as Spoken);
  }

  /** The focused element. */
  async function focused(): Promise<Pick<Spoken, 'role' | 'name'>> {
    const { role, name } = (await spoken()).findLast((node) => node.focused) ?? { role: 'nothing' };
    return { role, ...(name !== undefined && { name }) };
  }

  return {
    text,
    focused,
    dialogs: async () => (await spoken()).filter(({ role }) => role === 'dialog').map(({ name }) => name),

    /** Presses the button with this label, once it exists. */
    press: (label: string) => page.locator(`xpath/.//button[normalize-space()="${label}"]`).click(),

    /** Moves the focus with Tab to the element with this name. */
    async tabTo(role: string, name: string): Promise<void> {
      const passed: string[] = [];
      await until(`${role} ${name} to be there`, async () =>
        (await spoken()).some((node) => node.role === role && node.name === name),
      );
      for (let i = 0; i < 120; i++) {
        await page.keyboard.press('Tab');
        const at = await focused();
        if (at.role === role && at.name === name) return;
        passed.push(`${at.role} ${at.name}`);
      }
      throw new Error(`no way to ${role} ${name}:\n${passed.join('\n')}`);
    },

    async shows(words: string | RegExp): Promise<void> {
      let last = '';
      await until(`the page to show ${words}`, async () => {
        last = await text();
        return typeof words === 'string' ? last.includes(words) : words.test(last);
      }).catch((error) => {
        throw new Error(`${error.message}\nit shows:\n${last}\n${complaints.join('\n')}`);
      });
    },
  };
}
