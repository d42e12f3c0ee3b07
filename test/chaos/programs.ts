import { createConnection } from 'node:net';
import { join } from 'node:path';
import { Program } from './program.ts';

/** The processes of a world, which end when `opening` is disposed. */
export type Programs = ReturnType<typeof createPrograms>;

export function createPrograms(directory: string, opening: AsyncDisposableStack) {
  const programs: Record<string, Program> = {};
  const program = (one: Omit<ConstructorParameters<typeof Program>[0], 'log'>) => {
    const made = new Program({ ...one, log: join(directory, 'logs', `${one.name}.log`) });
    programs[one.name] = made;
    opening.defer(() => made.end('SIGKILL'));
    return made;
  };
  return { directory, opening, programs, program };
}

/** Whether a server accepts connections. */
export async function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createConnection(port, '127.0.0.1', () => resolve(true));
    socket.once('error', () => resolve(false)).once('connect', () => socket.destroy());
  });
}
