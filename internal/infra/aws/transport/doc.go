// SPDX-License-Identifier: Apache-2.0

// Package transport is what every call to AWS passes through: a [CallLimiter] counts calls, keeps
// them below AWS's rate limits and repeats those that are safe to repeat; [GateChanges] stops
// changes; [Wrap] gives errors their class; a [StatePoller] polls the states of many resources with
// one call. It knows no resource kind, except for the inputs that carry a client token.
package transport
