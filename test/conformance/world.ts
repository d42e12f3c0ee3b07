import { newPerson } from './accounts.ts';
import type { Person } from './consent.ts';
import { openOAuth } from './oauth.ts';
import { openReading } from './reading.ts';
import { type Options, openService } from './service.ts';

export type World = Awaited<ReturnType<typeof openWorld>>;

/** The service under test, and what a check can do with it. */
export async function openWorld(given: Options) {
  const service = await openService(given);
  const oauth = openOAuth(service);
  const library = openReading(service, oauth);
  const { admin, own, made } = service;
  return {
    ...service,
    ...oauth,
    ...library,

    /** Called by a check that has ended the shared connection. */
    forget(): void {
      oauth.forget();
      library.forget();
    },

    /** Another user with another company. */
    async newPerson(): Promise<Person & { userId: string; companyId: string; secondId: string }> {
      return newPerson(service.needAdmin(), service.send, made);
    },

    async close(): Promise<void> {
      await oauth.revokeAll();
      for (const id of made) {
        await (id.startsWith('usr_') ? admin!.removeUser(id) : admin!.removeAsset(id)).catch(() => {});
      }
      if (own) await admin!.removeUser(own.userId).catch(() => {});
      await service.disconnect();
    },
  };
}
