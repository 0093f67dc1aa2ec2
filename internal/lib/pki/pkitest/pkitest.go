// SPDX-License-Identifier: Apache-2.0

// Package pkitest makes certificate authorities for tests.
package pkitest

import (
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
)

// NewKubernetesCA returns a Kubernetes CA of cluster demo with a new key, which is valid from now.
func NewKubernetesCA(tb testing.TB, now time.Time) pki.CA {
	tb.Helper()
	key, err := pki.NewKey(pki.KubernetesCA)
	if err != nil {
		tb.Fatal(err)
	}

	ca, err := pki.NewCA(pki.KubernetesCA, "demo", key, now)
	if err != nil {
		tb.Fatal(err)
	}

	return ca
}
