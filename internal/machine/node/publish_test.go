// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

func timeOf(s string) (time.Time, error) { return time.Parse("20060102T150405Z", s) }

// agent returns an agent binary whose file contains is, and contained was when it was hashed.
func agent(was, is string) node.AgentBinary {
	hash := sha256.Sum256([]byte(was))
	return node.AgentBinary{SHA256: hex.EncodeToString(hash[:]), Read: func() ([]byte, error) { return []byte(is), nil }}
}

// TestChangedAgentIsNotPublished: machines would reject an agent that does not match its hash, one
// after the other.
func TestChangedAgentIsNotPublished(t *testing.T) {
	p := publication(t)
	for i, o := range p.Objects {
		if o.Body == nil {
			p.Objects[i].Agent = agent("agent", "another")
		}
	}
	s := store.NewFileStore(t.TempDir())
	written, err := node.PublishObjects(t.Context(), s, p.Objects)
	if err == nil || !strings.Contains(err.Error(), "the program changed after it was hashed") {
		t.Errorf("got %v", err)
	}
	if len(written) != len(p.Objects)-1 {
		t.Errorf("wrote %v", written)
	}
	if keys, err := s.List(t.Context(), node.AgentPrefix("demo")); err != nil || len(keys) != 0 {
		t.Errorf("published %v, %v", keys, err)
	}
	if written, err := node.PublishObjects(t.Context(), s, publication(t).Objects); err != nil || len(written) != 1 {
		t.Errorf("the right one: wrote %v, %v", written, err)
	}
}

func publication(t *testing.T) node.Publication {
	t.Helper()
	in := node.PublicationInput{
		Agents: map[string]node.AgentBinary{"amd64": agent("agent", "agent")}, Arch: map[string]string{"control-plane": "amd64", "nodes": "amd64"},
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
		b := p.BootLocations[group]
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
