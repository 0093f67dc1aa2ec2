// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/addon/published"
)

// TestCredentialsFor: a source gets the credentials for its host from a secret, and no others.
func TestCredentialsFor(t *testing.T) {
	t.Parallel()
	const config = `{"auths": {
		"registry.example.com": {"username": "robot", "password": "hunter2"},
		"https://index.example.com/v1/": {"auth": "cm9ib3Q6aHVudGVyMw=="},
		"broken.example.com": {"auth": "aHVudGVyMg=="},
		"empty.example.com": {}
	}}`

	for host, want := range map[string]string{
		"registry.example.com":      "hunter2",
		"index.example.com":         "hunter3",
		"registry.example.com:5000": "it has no user name and password for registry.example.com:5000",
		"example.com":               "it has no user name and password for example.com",
		"empty.example.com":         "it has no user name and password",
		"broken.example.com":        "is not USER:PASSWORD in base64",
	} {
		got, err := credentialsFor([]byte(config), host)
		switch {
		case err == nil && (got != published.Credentials{User: "robot", Password: want}):
			t.Errorf("%s: user %s", host, got.User)
		case err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter")):
			t.Errorf("%s: %v", host, err)
		}
	}

	if _, err := credentialsFor([]byte("hunter2"), "a"); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("no JSON: %v", err)
	}
}

// TestMachinesPull: an artifact in Amazon ECR must be where the role of the machines can read.
func TestMachinesPull(t *testing.T) {
	t.Parallel()
	const registry = "123456789012.dkr.ecr.us-east-1.amazonaws.com"

	for reference, isFine := range map[string]bool{
		"oci://registry.example.com/base:stable": true,
		"":                                       true,
		"oci://" + registry + "/mirror/channels/base:stable": true,
		"oci://" + registry + "/mirrored/base:stable":        false,
		"oci://" + registry + "/base:stable":                 false,
	} {
		s := &Session{Cluster: v1alpha1.Cluster{}}
		s.Cluster.Spec.Assets.ContainerRegistry = registry + "/mirror"
		if err := s.checkMachinesPull(reference); (err == nil) != isFine {
			t.Errorf("%s: %v", reference, err)
		}

		s.Cluster.Spec.Assets.ContainerRegistry = ""
		if err := s.checkMachinesPull(reference); (err == nil) != !strings.Contains(reference, registry) {
			t.Errorf("%s without a registry: %v", reference, err)
		}
	}
}

// TestFollowedPublication: a source is published encrypted, and replaces rendered add-ons without deleting them.
func TestFollowedPublication(t *testing.T) {
	b := newPublishBench(t)
	source := &published.Source{
		OCI:         "oci://registry.example.com/base:stable",
		Credentials: published.Credentials{User: "robot", Password: "hunter2"},
	}
	options := PublishOptions{Mode: published.Correct}
	rendered := Channel{Name: "base"}
	rendered.Releases = append(rendered.Releases, newTestRelease(t, "a", "1.0.0", "x"))
	if err := b.plan(rendered, options).Write(t.Context()); err != nil {
		t.Fatal(err)
	}

	p := b.plan(Channel{Name: "base", Source: source}, options)
	if !p.IsChange() || len(p.Changes) != 0 || p.Source != source.OCI {
		t.Errorf("got %+v", p.Changes)
	}

	if err := p.Write(t.Context()); err != nil {
		t.Fatal(err)
	}

	object, err := b.store.Get(t.Context(), published.Key("demo"))
	if err != nil || strings.Contains(string(object.Body), "hunter2") {
		t.Errorf("the object is not encrypted: %v", err)
	}

	if p := b.plan(Channel{Name: "base", Source: source}, options); p.IsChange() {
		t.Error("the same source is a change")
	}

	got, _ := b.open().former.Find("base")
	if got.Source.Credentials.Password != "hunter2" || len(got.Releases) != 0 {
		t.Error("the control plane does not get the credentials")
	}
}
