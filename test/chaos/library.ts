import { setTimeout as sleep } from 'node:timers/promises';
import type { Rule } from '../../src/library/faults/rules.ts';
import { type Admin, adminOf } from '../support/library.ts';
import type { Content } from './content.ts';
import type { Program } from './program.ts';
import type { Line } from './proxy.ts';

/**
 * The library as a process that is killed, too. Its database keeps users, grants and tokens. The content from the admin API is
 * lost, so it is sent again before clients can reach the library.
 */
export function openLibrary(options: { adminUrl: string; proxy: Line; content: Content; program: Program }) {
  const { proxy, content, program } = options;
  const admin = adminOf(options.adminUrl);
  let rules: Rule[] = [];
  let starts = 0;
  let up = false;

  async function start(): Promise<void> {
    await program.start();
    for (const project of starts === 0 ? [] : content.projects) await admin.addProject(project);
    for (const asset of content.held.values()) {
      if (asset.removed) continue;
      const { upload, later } = content.uploadOf(asset);
      await admin.addAsset(upload);
      if (later) await admin.changeAsset(asset.plan.id, later);
    }
    await admin.setFaults(...rules);
    starts++;
    up = true;
    proxy.open = true;
  }

  /** Repeats calls that fail because the library is killed: each may be received twice. */
  async function tell<T>(say: (admin: Admin) => Promise<T>): Promise<T> {
    const until = Date.now() + 120_000;
    for (;;) {
      while (!up) {
        if (Date.now() > until) throw new Error('the library does not come back');
        await sleep(50);
      }
      const before = starts;
      try {
        return await say(admin);
      } catch (error) {
        if (up && starts === before) throw error;
      }
    }
  }

  return {
    start,
    admin: tell,

    async kill() {
      up = false;
      proxy.open = false;
      await program.end('SIGKILL');
      proxy.cut();
      return start;
    },

    async spoil(more: Rule[]): Promise<void> {
      rules = [...rules, ...more];
      await tell((a) => a.setFaults(...rules));
    },
    async repair(these: Rule[]): Promise<void> {
      rules = rules.filter((rule) => !these.includes(rule));
      await tell((a) => a.setFaults(...rules));
    },
  };
}
