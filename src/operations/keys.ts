import type { OperationsDeps } from './deps.ts';

export const keyOperations = ({ tokens }: Pick<OperationsDeps, 'tokens'>) => ({
  /** Seals all tokens with the first key of this process. */
  rotateKeys: () => tokens.rotateKeys(),
});
