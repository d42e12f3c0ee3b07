import type { Store } from './database/store.ts';
import { keyOf, type Tables } from './database/tables.ts';
import type { Company, Registration, User } from './model.ts';
import { digest, hashPassword, isPassword, safeEqual } from './secrets.ts';

/** Apps, users, companies, and which user can read which company. */
export class Accounts {
  readonly #store: Store;
  /** Companies of the content. They are not stored: they exist while the content has them. */
  readonly #contentCompanies = new Map<string, Company>();
  readonly #unknownUserHash = hashPassword('');

  constructor(store: Store) {
    this.#store = store;
  }

  /** Adds or changes an app. Without a secret, the app keeps the one it has. */
  register(registration: Registration, clientSecret?: string): Promise<void> {
    return this.#store.change((changes) => {
      const stored = this.#store.rows('apps').get(registration.clientId);
      const secretHash = clientSecret === undefined ? stored?.secretHash : digest(clientSecret);
      if (secretHash === undefined) throw new Error(`The app ${registration.clientId} needs a secret.`);
      changes.put('apps', { ...registration, secretHash });
    });
  }

  /** Removes an app, but not its connections. */
  unregister(clientId: string): Promise<void> {
    return this.#store.change((changes) => changes.delete('apps', clientId));
  }

  registrations(): Registration[] {
    return [...this.#store.rows('apps').values()].map(registrationOf);
  }

  registration(clientId: string): Registration | undefined {
    const app = this.#store.rows('apps').get(clientId);
    return app && registrationOf(app);
  }

  isClientSecret(clientId: string, clientSecret: string): boolean {
    const secretHash = this.#store.rows('apps').get(clientId)?.secretHash;
    return safeEqual(digest(clientSecret), secretHash ?? '') && secretHash !== undefined;
  }

  async addUser({ id, name, email }: User, password: string): Promise<void> {
    const passwordHash = await hashPassword(password);
    await this.#store.change((changes) => changes.put('users', { id, name, email, passwordHash, removed: false }));
  }

  removeUser(id: string): Promise<void> {
    return this.#store.change((changes) => {
      const user = this.#store.rows('users').get(id);
      if (user) changes.put('users', { ...user, removed: true });
      const access = [...this.#store.rows('access').values()].filter(({ userId }) => userId === id);
      changes.put('access', ...access.map((row) => ({ ...row, allowed: false })));
    });
  }

  /** Whether a user was ever added, removed users included. */
  wasAdded(id: string): boolean {
    return this.#store.rows('users').has(id);
  }

  users(): User[] {
    return this.#activeUsers().map(userOf);
  }

  user(id: string): User | undefined {
    const user = this.#store.rows('users').get(id);
    return user && !user.removed ? userOf(user) : undefined;
  }

  async userByPassword(email: string, password: string): Promise<User | undefined> {
    const user = this.#activeUsers().find((user) => user.email.toLowerCase() === email.trim().toLowerCase());
    // An unknown address takes as long as a wrong password.
    const isRight = await isPassword(password, user?.passwordHash ?? (await this.#unknownUserHash));
    return user && isRight ? userOf(user) : undefined;
  }

  addCompany({ id, name }: Company): Promise<void> {
    return this.#store.change((changes) => changes.put('companies', { id, name }));
  }

  addContentCompany({ id, name }: Company): void {
    this.#contentCompanies.set(id, { id, name });
  }

  company(id: string): Company | undefined {
    return this.#contentCompanies.get(id) ?? this.#store.rows('companies').get(id);
  }

  companies(): Company[] {
    return [...this.#contentCompanies.values(), ...this.#store.rows('companies').values()];
  }

  companiesOf(userId: string): Company[] {
    return this.companies().filter(({ id }) => this.#access(userId, id)?.allowed);
  }

  setAccess(userId: string, companyId: string, allowed: boolean): Promise<void> {
    return this.#store.change((changes) => changes.put('access', { userId, companyId, allowed }));
  }

  /** Whether access was ever granted or revoked. */
  isAccessSet(userId: string, companyId: string): boolean {
    return this.#access(userId, companyId) !== undefined;
  }

  #access(userId: string, companyId: string): Tables['access'] | undefined {
    return this.#store.rows('access').get(keyOf('access', { userId, companyId }));
  }

  #activeUsers(): Tables['users'][] {
    return [...this.#store.rows('users').values()].filter(({ removed }) => !removed);
  }
}

function registrationOf({ secretHash: _, ...registration }: Tables['apps']): Registration {
  return registration;
}

function userOf({ id, name, email }: User): User {
  return { id, name, email };
}
