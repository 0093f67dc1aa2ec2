// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"

	"github.com/slipway-k8s/slipway/internal/machine/imdsguard"
	"github.com/slipway-k8s/slipway/internal/machine/instancedata"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// oneValue is a metadata service with the same value everywhere.
type oneValue string

func (v oneValue) GetMetadata(context.Context, *imds.GetMetadataInput, ...func(*imds.Options)) (*imds.GetMetadataOutput, error) {
	return &imds.GetMetadataOutput{Content: io.NopCloser(strings.NewReader(string(v)))}, nil
}

// TestInstanceDataIsServedForVPCPods: only machines whose pods have addresses of the VPC serve metadata, on a loopback address.
func TestInstanceDataIsServedForVPCPods(t *testing.T) {
	a := testAgent(t)
	a.Metadata = oneValue("eni-1")
	read := func() (string, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+instancedata.Address+"/latest/meta-data/mac", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)

		return string(body), err
	}
	serve := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- keepInstanceData(ctx, a) }()

		return func() {
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	}

	stop := serve()
	if got, err := read(); err == nil {
		t.Errorf("with flannel, the agent serves %q", got)
	}
	stop()

	a.doc.Network.CNI = "amazon-vpc"
	stop = serve()
	defer stop()
	deadline := time.Now().Add(10 * time.Second)
	for {
		got, err := read()
		if err == nil && got == "eni-1" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the agent serves %q, %v", got, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestGuardOfVPCPods: pods that have addresses as machines have are told apart by their links, and Nodes have no ranges.
func TestGuardOfVPCPods(t *testing.T) {
	for cni, want := range map[string]imdsguard.Allowed{"": {PodNetwork: "10.244.0.0/16"}, "amazon-vpc": {PodLinks: "eni*"}} {
		a := testAgent(t)
		a.doc.Network.CNI = cni
		a.doc.Network.PodCIDR = "10.244.0.0/16"
		var got imdsguard.Allowed
		a.GuardMetadata = func(_ context.Context, allowed imdsguard.Allowed) error {
			got = allowed
			return nil
		}
		if err := a.guardMetadata(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got.PodNetwork != want.PodNetwork || got.PodLinks != want.PodLinks {
			t.Errorf("%q: the guard allows %+v, want %+v", cni, got, want)
		}

		flags := strings.Join(kube.ControllerManagerFlags(a.kubeConfig()), " ")
		for flag, with := range map[string]bool{
			"--allocate-node-cidrs=true": cni == "", "--cluster-cidr=10.244.0.0/16": cni == "", "--allocate-node-cidrs=false": cni != "",
		} {
			if strings.Contains(flags, flag) != with {
				t.Errorf("%q: the flags of kube-controller-manager are %s", cni, flags)
			}
		}
	}
}
