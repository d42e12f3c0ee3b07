import type { Company, User } from './model.ts';
import { digest, hashPassword, isPassword, same } from './secrets.ts';

/** Section 2.1: an app as its developer registered it. */
export type Registration = {
  clientId: string;
  name: string;
  logoUrl: string | null;
  websiteUrl: string;
  redirectUris: string[];
};

/** Who there is and who may read what. Asynchronous, because a database may hold it. */
export type Accounts = {
  register(registration: Registration, clientSecret: string): Promise<void>;
  registration(clientId: string): Promise<Registration | undefined>;
  isClientSecret(clientId: string, clientSecret: string): Promise<boolean>;

  addUser(user: User, password: string): Promise<void>;
  removeUser(id: string): Promise<void>;
  users(): Promise<User[]>;
  user(id: string): Promise<User | undefined>;
  userByPassword(email: string, password: string): Promise<User | undefined>;

  addCompany(company: Company): Promise<void>;
  company(id: string): Promise<Company | undefined>;
  companies(): Promise<Company[]>;
  companiesOf(userId: string): Promise<Company[]>;
  setAccess(userId: string, companyId: string, allowed: boolean): Promise<void>;
};

export function createAccounts(): Accounts {
  const registrations = new Map<string, Registration & { secretHash: string }>();
  const users = new Map<string, User & { passwordHash: string }>();
  const companies = new Map<string, Company & { members: Set<string> }>();
  const nobody = hashPassword('nobody');

  return {
    async register(registration, clientSecret) {
      registrations.set(registration.clientId, { ...registration, secretHash: digest(clientSecret) });
    },
    registration: async (clientId) => registrations.get(clientId),
    async isClientSecret(clientId, clientSecret) {
      const secretHash = registrations.get(clientId)?.secretHash;
      return same(digest(clientSecret), secretHash ?? '') && secretHash !== undefined;
    },

    async addUser(user, password) {
      users.set(user.id, { ...user, passwordHash: await hashPassword(password) });
    },
    async removeUser(id) {
      users.delete(id);
      for (const company of companies.values()) company.members.delete(id);
    },
    users: async () => [...users.values()].map(publicUser),
    async user(id) {
      const user = users.get(id);
      return user && publicUser(user);
    },
    async userByPassword(email, password) {
      const user = [...users.values()].find((user) => user.email.toLowerCase() === email.trim().toLowerCase());
      // An unknown address takes as long as a wrong password.
      const right = await isPassword(password, user?.passwordHash ?? (await nobody));
      return user && right ? publicUser(user) : undefined;
    },

    async addCompany(company) {
      companies.set(company.id, { ...company, members: companies.get(company.id)?.members ?? new Set() });
    },
    async company(id) {
      const company = companies.get(id);
      return company && publicCompany(company);
    },
    companies: async () => [...companies.values()].map(publicCompany),
    companiesOf: async (userId) =>
      [...companies.values()].filter((company) => company.members.has(userId)).map(publicCompany),
    async setAccess(userId, companyId, allowed) {
      const members = companies.get(companyId)?.members;
      if (allowed) members?.add(userId);
      else members?.delete(userId);
    },
  };
}

function publicUser({ id, name, email }: User): User {
  return { id, name, email };
}

function publicCompany({ id, name }: Company): Company {
  return { id, name };
}
