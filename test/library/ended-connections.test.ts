import { afterAll, describe, expect, it } from 'vitest';
import { connect, startTestLibrary } from '../support/library.ts';
import { error, requestsTo } from './oauth-requests.ts';

const { library, admin } = await startTestLibrary();
const { refresh, me, revoke } = requestsTo(library);
afterAll(() => library.close());

describe('the end of a connection (3.2, 4.3)', () => {
  it('revoke answers 200 with an empty object, and ends the connection', async () => {
    const { access_token, refresh_token } = await connect(library);
    const response = await revoke(refresh_token);
    expect(response.status).toBe(200);
    expect(await response.json()).toEqual({});
    expect((await me(access_token)).status).toBe(401);
    expect(await error(await refresh(refresh_token))).toEqual({ status: 400, error: 'invalid_grant' });
  });

  it('revoke answers the same to an unknown token and to wrong credentials, and ends nothing', async () => {
    const { access_token, refresh_token } = await connect(library);
    for (const response of [await revoke('svcr_unknown'), await revoke(refresh_token, 'Basic eDp5')]) {
      expect(response.status).toBe(200);
      expect(await response.json()).toEqual({});
    }
    expect((await me(access_token)).status).toBe(200);
  });

  it('disconnecting the app ends the connection', async () => {
    const { access_token, refresh_token } = await connect(library);
    await admin.endConnections('usr_ada');
    expect((await me(access_token)).status).toBe(401);
    expect(await error(await refresh(refresh_token))).toEqual({ status: 400, error: 'invalid_grant' });
  });

  it('a company that the user can no longer read leaves /me, and losing the last one ends the connection', async () => {
    const user = await admin.addUser({ name: 'Lost', email: 'lost@example.com' });
    const kept = await admin.addCompany({ name: 'Kept', userIds: [user.id] });
    const lost = await admin.addCompany({ name: 'Lost', userIds: [user.id] });
    const { access_token, refresh_token } = await connect(library, 'lost@example.com');

    await admin.setAccess(lost.id, user.id, false);
    expect(await (await me(access_token)).json()).toMatchObject({ companies: [kept] });

    await admin.setAccess(kept.id, user.id, false);
    expect((await me(access_token)).status).toBe(401);
    expect(await error(await refresh(refresh_token))).toEqual({ status: 400, error: 'invalid_grant' });
  });

  it('the admin API expires access tokens, and the connection continues', async () => {
    const { access_token, refresh_token } = await connect(library);
    const [before] = await admin.connections();
    await admin.expireTokens();
    expect((await me(access_token)).status).toBe(401);
    expect((await refresh(refresh_token)).status).toBe(200);
    expect((await admin.connections())[0]!.refreshTokens).toBe(before!.refreshTokens);
  });
});
