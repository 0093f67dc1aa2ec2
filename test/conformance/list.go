// SPDX-License-Identifier: Apache-2.0

// Package conformance runs Kubernetes' conformance tests, which Kubernetes calls specs: it reads the list of those that are
// left out, with the reason of each, builds the command lines of the tests' programs, and reads their reports. The programs
// are upstream's own, built by slipway assets build --conformance. The package does not know how a cluster is made.
package conformance

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Exception is a spec that is not run.
type Exception struct {
	// Spec is the full name of the spec: the texts of its containers and its own.
	Spec string
	// Reason says why the spec cannot pass here.
	Reason string
}

// reasonMark separates the name of a spec from the reason.
const reasonMark = " -- "

// ParseExceptions reads a list: one spec a line with its name and, after " -- ", the reason. Empty lines and lines that
// begin with # are ignored. The lines are sorted by name, without duplicates.
func ParseExceptions(r io.Reader) ([]Exception, error) {
	var out []Exception

	lines := bufio.NewScanner(r)
	for number := 1; lines.Scan(); number++ {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}

		name, reason, _ := strings.Cut(line, reasonMark)
		switch {
		case !hasMark(name) || strings.TrimSpace(name) != name:
			return nil, fmt.Errorf(
				"line %d: invalid name %q: want the full name of a spec with %s or %s",
				number,
				name,
				Conformance.mark(),
				NetworkPolicy.mark(),
			)

		case strings.TrimSpace(reason) == "":
			return nil, fmt.Errorf("line %d: %s has no reason: add %qREASON", number, name, reasonMark)

		case len(out) > 0 && out[len(out)-1].Spec >= name:
			return nil, fmt.Errorf("line %d: %s does not sort after %s", number, name, out[len(out)-1].Spec)
		}

		out = append(out, Exception{Spec: name, Reason: reason})
	}

	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the list of specs that are left out: %w", err)
	}

	return out, nil
}

func hasMark(name string) bool {
	return strings.Contains(name, Conformance.mark()) || strings.Contains(name, NetworkPolicy.mark())
}

// FindUnknown returns the exceptions that name none of the specs, such as after an update of Kubernetes.
func FindUnknown(exceptions []Exception, specs []string) []Exception {
	var out []Exception
	for _, e := range exceptions {
		if !slices.Contains(specs, e.Spec) {
			out = append(out, e)
		}
	}

	return out
}

// Registries returns a file for KUBE_TEST_REPO_LIST: the tests take all images from a mirror, below the name of
// the upstream registry, as the local region serves them.
func Registries(mirror string) string {
	var out strings.Builder
	for _, row := range [][2]string{
		{"buildImageRegistry", "registry.k8s.io/build-image"},
		{"cloudProviderGcpRegistry", "registry.k8s.io/cloud-provider-gcp"},
		{"dockerLibraryRegistry", "docker.io/library"},
		{"gcEtcdRegistry", "registry.k8s.io"},
		{"gcRegistry", "registry.k8s.io"},
		{"invalidRegistry", "invalid.registry.k8s.io/invalid"},
		{"privateRegistry", "gcr.io/k8s-authenticated-test"},
		{"promoterE2eRegistry", "registry.k8s.io/e2e-test-images"},
		{"sigStorageRegistry", "registry.k8s.io/sig-storage"},
	} {
		fmt.Fprintf(&out, "%s: %s/%s\n", row[0], mirror, row[1])
	}

	return out.String()
}
