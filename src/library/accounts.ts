import type { Store } from './database/store.ts';
import { keyOf } from './database/tables.ts';
import type { Company, Registration, User } from './model.ts';
import { digest, hashPassword, isPassword, same } from './secrets.ts';

/** Who there is and who may read what. */
export type Accounts = {
  /** Without a secret, the one it has stays. */
  register(registration: Registration, clientSecret?: string): Promise<void>;
  /** The app is no longer known. Its connections are not touched. */
  unregister(clientId: string): Promise<void>;
  registrations(): Registration[];
  registration(clientId: string): Registration | undefined;
  isClientSecret(clientId: string, clientSecret: string): boolean;

  addUser(user: User, password: string): Promise<void>;
  removeUser(id: string): Promise<void>;
  /** Also those that were removed. */
  wasAdded(id: string): boolean;
  users(): User[];
  user(id: string): User | undefined;
  userByPassword(email: string, password: string): Promise<User | undefined>;

  addCompany(company: Company): Promise<void>;
  /** A company that is there because its content is, and only for as long. */
  bringCompany(company: Company): void;
  company(id: string): Company | undefined;
  companies(): Company[];
  companiesOf(userId: string): Company[];
  setAccess(userId: string, companyId: string, allowed: boolean): Promise<void>;
  /** Whether it was ever said if a user may read a company. */
  isAccessSet(userId: string, companyId: string): boolean;
};

export function createAccounts(store: Store): Accounts {
  const apps = store.rows('apps');
  const users = store.rows('users');
  const added = store.rows('companies');
  const access = store.rows('access');
  const brought = new Map<string, Company>();
  const nobody = hashPassword('nobody');

  const companies = () => [...brought.values(), ...added.values()];
  const accessOf = (userId: string, companyId: string) =>
    access.get(keyOf('access', { userId, companyId, allowed: true }));
  const present = () => [...users.values()].filter(({ removed }) => !removed);

  return {
    register: (registration, clientSecret) =>
      store.change((changes) => {
        const secretHash =
          clientSecret === undefined ? apps.get(registration.clientId)?.secretHash : digest(clientSecret);
        if (secretHash === undefined) throw new Error(`${registration.clientId} has no secret`);
        changes.put('apps', { ...registration, secretHash });
      }),
    unregister: (clientId) => store.change((changes) => changes.delete('apps', clientId)),
    registrations: () => [...apps.values()].map(publicRegistration),
    registration(clientId) {
      const app = apps.get(clientId);
      return app && publicRegistration(app);
    },
    isClientSecret(clientId, clientSecret) {
      const secretHash = apps.get(clientId)?.secretHash;
      return same(digest(clientSecret), secretHash ?? '') && secretHash !== undefined;
    },

    async addUser(user, password) {
      const passwordHash = await hashPassword(password);
      await store.change((changes) => changes.put('users', { ...publicUser(user), passwordHash, removed: false }));
    },
    removeUser: (id) =>
      store.change((changes) => {
        const user = users.get(id);
        if (user) changes.put('users', { ...user, removed: true });
        for (const row of access.values()) if (row.userId === id) changes.put('access', { ...row, allowed: false });
      }),
    wasAdded: (id) => users.has(id),
    users: () => present().map(publicUser),
    user(id) {
      const user = users.get(id);
      return user && !user.removed ? publicUser(user) : undefined;
    },
    async userByPassword(email, password) {
      const user = present().find((user) => user.email.toLowerCase() === email.trim().toLowerCase());
      // An unknown address takes as long as a wrong password.
      const right = await isPassword(password, user?.passwordHash ?? (await nobody));
      return user && right ? publicUser(user) : undefined;
    },

    addCompany: (company) => store.change((changes) => changes.put('companies', publicCompany(company))),
    bringCompany(company) {
      brought.set(company.id, publicCompany(company));
    },
    company: (id) => brought.get(id) ?? added.get(id),
    companies,
    companiesOf: (userId) => companies().filter(({ id }) => accessOf(userId, id)?.allowed),
    setAccess: (userId, companyId, allowed) =>
      store.change((changes) => changes.put('access', { userId, companyId, allowed })),
    isAccessSet: (userId, companyId) => accessOf(userId, companyId) !== undefined,
  };
}

function publicRegistration({ clientId, name, logoUrl, websiteUrl, redirectUris }: Registration): Registration {
  return { clientId, name, logoUrl, websiteUrl, redirectUris };
}

function publicUser({ id, name, email }: User): User {
  return { id, name, email };
}

function publicCompany({ id, name }: Company): Company {
  return { id, name };
}
