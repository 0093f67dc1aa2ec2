// SPDX-License-Identifier: Apache-2.0

// Package discovery reads facts from AWS that a manifest refers to or that preflight checks need:
// unmanaged resources that the manifest names by id, hosted zones, machine images, service quotas,
// permissions, the caller's identity and the clock. It changes nothing, and it does not judge what
// it reads.
package discovery
