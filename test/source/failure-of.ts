/** The error of a promise that must fail. */
export const failureOf = (promise: Promise<unknown>) =>
  promise.then(
    () => {
      throw new Error('it was no failure');
    },
    (error) => error,
  );
