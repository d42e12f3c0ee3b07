import type { ApiClient } from '../client.ts';
import { harmless, paint, print, printJson } from '../output.ts';
import { colours } from './assets.ts';

/** Prints where an asset is, or why it is not mirrored, and its history. */
export async function explain(api: ApiClient, assetId: string, options: { json?: boolean }): Promise<void> {
  const asset = await api.asset(assetId);
  if (options.json) return printJson(asset);
  const { id, name, companyId, type, state, explanation, timeline } = asset;
  const where = asset.skipped ? paint('yellow', 'skipped') : paint(colours[state], state);
  print(`${paint('bold', harmless(name ?? id))}  ${where}`);
  print(paint('dim', harmless([id, `company ${companyId}`, type].filter(Boolean).join(', '))));
  print();
  for (const line of explanation) print(harmless(line));
  print();
  let run: string | null = null;
  for (const { at, text, syncId } of timeline) {
    if (syncId !== null && syncId !== run) {
      print(paint('dim', `sync ${syncId}`));
      run = syncId;
    }
    print(`${paint('dim', at)}  ${harmless(text)}`);
  }
}
