import type { ApiClient } from '../client.ts';
import { harmless, paint, print, printJson } from '../output.ts';

/** Sends a test message to the webhook endpoint. Returns 1 if it was not accepted. */
export async function testWebhook(api: ApiClient, options: { json?: boolean }): Promise<number> {
  const { delivered, reason } = await api.testWebhook();
  if (options.json) printJson({ delivered, reason });
  else if (delivered) print(`${paint('green', '✓')} The webhook endpoint accepted the test message.`);
  else print(`${paint('red', '✗')} The webhook endpoint did not accept the test message: ${harmless(reason ?? '')}`);
  return delivered ? 0 : 1;
}
