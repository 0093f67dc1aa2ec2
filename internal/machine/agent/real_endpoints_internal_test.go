// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// realAddress is the address of the API servers in the Service kubernetes, which cannot have loopback addresses.
const realAddress = "10.0.0.4"

// checkEndpointsAreKept stops the API server first. Both have the same address, and so the same lease: the one that
// stops removes the last address of the Service kubernetes. api is a client of the other one, which must see an
// address all the time.
func checkEndpointsAreKept(t *testing.T, api kube.Client, first *os.Process) {
	t.Helper()
	const slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
	const endpoints = "/api/v1/namespaces/default/endpoints/kubernetes"
	eventually(t, "an empty list is rejected", func() error {
		for path, empty := range map[string]string{slices: `{"endpoints":[]}`, endpoints: `{"subsets":[]}`} {
			_, err := api.Do(t.Context(), http.MethodPatch, path, "application/merge-patch+json", []byte(empty))
			if err == nil || !strings.Contains(err.Error(), "keeps the address of its last API server") {
				return fmt.Errorf("%s %s: %v", path, empty, err) //nolint:errorlint // it may be nil
			}
		}
		return nil
	})
	if _, err := api.Do(t.Context(), http.MethodPatch, slices, "application/merge-patch+json",
		[]byte(`{"endpoints":[{"addresses":["10.9.9.9"]}]}`)); err != nil {
		t.Errorf("another address is rejected: %v", err)
	}

	if err := first.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	answers := 0
	for deadline := time.Now().Add(8 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var object struct {
			Endpoints []struct {
				Addresses []string `json:"addresses"`
			} `json:"endpoints"`
		}
		if err := api.Get(t.Context(), slices, &object); err != nil {
			continue
		}
		answers++
		if len(object.Endpoints) == 0 {
			t.Fatal("the Service kubernetes has no endpoint while an API server stops")
		}
	}
	if answers == 0 {
		t.Error("the other API server did not answer")
	}
}
