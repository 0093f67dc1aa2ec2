// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// policyManifest isolates the pods with label policy=target in both directions.
const policyManifest = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: target, namespace: default}
spec: {podSelector: {matchLabels: {policy: target}}, policyTypes: [Ingress, Egress]}
`

// policyException allows the other probes to connect to it.
const policyException = `
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: probes, namespace: default}
spec:
  podSelector: {matchLabels: {policy: target}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {app: probe}}}], ports: [{port: 8080}]}]
`

// checkNetworkPolicy isolates one of two pods on different nodes, allows connections to it, and removes both policies.
// Each pod is name, address and node.
func checkNetworkPolicy(e *environment, first, second []string) {
	e.t.Helper()
	e.kubectl("label", "pod", second[0], "policy=target")
	file := filepath.Join(e.t.TempDir(), "policies.yaml")
	apply := func(manifest string) {
		e.t.Helper()
		if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
			e.t.Fatal(err)
		}

		e.kubectl("apply", "-f", file)
	}
	connects := func(from, to []string) error {
		r := e.tryKubectl("exec", from[0], "--", "/probe", "get", "http://"+to[1]+":8080/hostname")
		if r.code != 0 {
			return errors.New(r.err + r.out)
		}

		return nil
	}
	await := func(what string, from, to []string, want bool) {
		e.t.Helper()
		e.waitUntil(what, 30*time.Second, func() error {
			if err := connects(from, to); (err == nil) != want {
				return fmt.Errorf("connected %t, want %t: %w", err == nil, want, err)
			}

			return nil
		})
	}

	apply(policyManifest)
	await("nobody connects to an isolated pod", first, second, false)
	await("an isolated pod connects to nobody", second, first, false)
	if err := connects(second, second); err != nil {
		e.t.Errorf("an isolated pod does not reach itself: %v", err)
	}

	apply(policyManifest + policyException)
	await("an exception allows connections", first, second, true)
	await("an exception allows one direction", second, first, false)
	e.kubectl("delete", "-f", file)
	await("without policies every pod connects", second, first, true)
	e.kubectl("label", "pod", second[0], "policy-")
}
