import { LibraryClient } from '../../src/source/client.ts';
import { createAgent } from '../../src/source/http.ts';
import { connect, startTestLibrary } from '../support/library.ts';
import { startBare } from './bare.ts';

export const signal = new AbortController().signal;

/** A library and a bare server in this process, with a client for each. */
export async function newClientGround() {
  const agent = createAgent({ connections: 10 });
  const { library, admin } = await startTestLibrary();
  const bare = await startBare();

  const client = () => new LibraryClient({ apiUrl: library.apiUrl, dispatcher: agent });
  const odd = () => new LibraryClient({ apiUrl: bare.url, dispatcher: agent });

  let companies = 0;
  /** A company with this number of assets, the newest first. */
  async function newCompany(count = 0) {
    const company = await admin.addCompany({ name: `Company ${++companies}`, userIds: ['usr_ada'] });
    const ids: string[] = [];
    for (let i = 0; i < count; i++) {
      const asset = await admin.addAsset({
        companyId: company.id,
        name: `${i}.bin`,
        mimeType: 'application/octet-stream',
        assetType: 'documents',
        uploadDate: 1_700_000_000_000 - i,
      });
      ids.push(asset.id);
    }
    return { id: company.id, ids };
  }
  const newFilm = async (more: object = {}) => {
    const { id: companyId } = await newCompany();
    return admin.addAsset({ companyId, name: 'film.mp4', mimeType: 'video/mp4', assetType: 'videos', ...more });
  };

  // A user without companies is disconnected, so this company stays.
  await newCompany();
  const token = (await connect(library)).access_token;

  return {
    agent,
    library,
    admin,
    bare,
    token,
    client,
    odd,
    newCompany,
    newFilm,

    /** After each test. */
    reset: () => admin.clearFaults(),
    async close() {
      await agent.destroy();
      await bare.close();
      await library.close();
    },
  };
}
