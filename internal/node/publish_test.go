// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/node"
)

func timeOf(s string) (time.Time, error) { return time.Parse("20060102T150405Z", s) }

func publication(t *testing.T) node.Publication {
	t.Helper()
	in := node.PublicationInput{
		Agents: map[string][]byte{"amd64": []byte("agent")}, Arch: map[string]string{"control-plane": "amd64", "nodes": "amd64"},
		StoreURL: "s3://bucket/prefix",
	}
	for i := range groups() {
		d, err := node.BuildDocument(input(i))
		if err != nil {
			t.Fatal(err)
		}
		in.Documents = append(in.Documents, d)
	}
	p, err := node.BuildPublication(in)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestBuildPublication(t *testing.T) {
	p := publication(t)
	if len(p.Objects) != 3 {
		t.Fatalf("objects: %d, want one agent and two documents", len(p.Objects))
	}
	for group, prefix := range map[string]string{"control-plane": "controlplane", "nodes": "worker"} {
		b := p.Boot[group]
		want := "s3://bucket/prefix/demo/machine/" + prefix + "/documents/" + group + "-" + b.DocumentSHA256 + ".json"
		if b.DocumentURL != want {
			t.Errorf("document of %s: %s, want %s", group, b.DocumentURL, want)
		}
		if !strings.HasPrefix(b.AgentURL, "s3://bucket/prefix/demo/machine/agent/"+b.AgentSHA256) {
			t.Errorf("agent of %s: %s", group, b.AgentURL)
		}
	}
	if _, err := node.BuildPublication(node.PublicationInput{Documents: []node.Document{{Group: "g"}}}); err == nil {
		t.Error("no agent for the architecture: want an error")
	}
}
