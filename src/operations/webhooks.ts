import { z } from 'zod';
import type { OperationsDeps } from './deps.ts';
import { Refused } from './refused.ts';

export const testedWebhook = z
  .object({ delivered: z.boolean(), reason: z.string().nullable().describe('Why it was not delivered.') })
  .meta({ id: 'TestedWebhook' });

export const webhookOperations = ({ sendTestWebhook }: Pick<OperationsDeps, 'sendTestWebhook'>) => ({
  /** Sends a test message to the webhook endpoint, once. */
  async testWebhook() {
    if (!sendTestWebhook) {
      throw new Refused(
        409,
        'webhook_not_configured',
        'No webhook endpoint is configured. Set WEBHOOK_URL and WEBHOOK_SECRET, and restart asset-mirror.',
      );
    }
    const { delivered, reason = null } = await sendTestWebhook();
    return { delivered, reason };
  },
});
