"""Where content is read from: a folder, a sqlite target. FileVault checkouts and packages are `packages/filevault`."""
