// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// refused runs slipway and checks that it fails with one error that contains want, and leaves AWS and the
// state store as they are.
func (s shell) refused(r regiontest.Region, want string, args ...string) {
	s.t.Helper()
	isManifest := func(call string) bool { return !strings.HasPrefix(call, "s3:") }
	before := mutations(r, isManifest)
	manifests := s.must("get", "cluster", "demo", "-o", "yaml")
	code, _, errs := s.run(args...)
	if code != 1 || strings.Count(errs, "error: ") != 2 || !strings.Contains(errs, want) {
		s.t.Errorf("%s: exit %d, want one finding with\n%s\ngot\n%s", strings.Join(args, " "), code, want, errs)
	}
	if n := mutations(r, isManifest) - before; n != 0 {
		s.t.Errorf("%s made %d calls that change something", strings.Join(args, " "), n)
	}
	if now := s.must("get", "cluster", "demo", "-o", "yaml"); now != manifests {
		s.t.Errorf("%s changed the manifests", strings.Join(args, " "))
	}
}

// edited writes the cluster's manifest with a replaced text into a file.
func (s shell) edited(old, now string) string {
	s.t.Helper()
	text := s.must("get", "cluster", "demo", "-o", "yaml")
	if !strings.Contains(text, old) {
		s.t.Fatalf("no %q in %s", old, text)
	}
	path := filepath.Join(s.t.TempDir(), "edited.yaml")
	if err := os.WriteFile(path, []byte(strings.Replace(text, old, now, 1)), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// TestBreakingEditsAreRefused: what cannot change in place is refused before anything is written, by every
// command that could lead to it; before the first apply everything may change.
func TestBreakingEditsAreRefused(t *testing.T) {
	r := regiontest.Start(t)
	s := newShell(t, r)
	s.must("state", "init", "--yes")
	s.must("create", "cluster", "demo", "--zones", "us-east-1a,us-east-1b,us-east-1c", "--yes", "-q")
	s.must("replace", "-f", s.edited("podCIDR: 10.244.0.0/16", "podCIDR: 10.240.0.0/16"), "--yes")
	s.must("apply", "demo", "--yes", "-q")
	pods := s.edited("podCIDR: 10.240.0.0/16", "podCIDR: 10.200.0.0/16")
	const want = `cluster/demo: spec.networking.podCIDR "10.200.0.0/16": cannot change once the cluster is applied; ` +
		`it is 10.240.0.0/16 (keep it: `
	s.refused(r, want, "replace", "-f", pods, "--yes")
	s.refused(r, want, "diff", "-f", pods)
	vpc := s.edited("networkCIDR: 10.80.0.0/16", "networkCIDR: 10.90.0.0/16")
	s.refused(r, `spec.networking.networkCIDR "10.90.0.0/16"`, "diff", "-f", vpc)
	s.refused(r, `spec.etcd.volume.size "10": cannot shrink from 20`, "replace", "-f", s.edited("size: 20", "size: 10"), "--yes")
	zone := "    - {name: private-z, type: Private, zone: us-east-1z}\n    - {name: public-z, type: Public, zone: us-east-1z}\n"
	s.refused(r, `zone "us-east-1z": does not exist in region us-east-1 for this account (use one of us-east-1a, us-east-1b`,
		"replace", "-f", s.edited("    subnets:\n", "    subnets:\n"+zone), "--yes")

	s.env["EDITOR"] = `sed -i "s/podCIDR: .*/podCIDR: 10.200.0.0\/16/"`
	s.refused(r, want, "edit", "cluster", "demo", "--yes")
	for old, now := range map[string]string{
		"dnsDomain: cluster.local":            "dnsDomain: cluster.internal",
		"serviceClusterIPRange: 10.96.0.0/16": "serviceClusterIPRange: 10.98.0.0/16",
	} {
		field, value, _ := strings.Cut(now, ": ")
		want := fmt.Sprintf("%s %q: cannot change once the cluster is applied", field, value)
		edited := s.edited(old, now)
		s.refused(r, want, "replace", "-f", edited, "--yes")
		s.refused(r, want, "diff", "-f", edited)
	}

	// A slipway that did not check has written it, and an operator has signed it.
	putManifest(t, r, pods)
	s.must("state", "sign", "demo", "--yes", "-q")
	s.refused(r, want, "plan", "demo")
	s.refused(r, want, "apply", "demo", "--yes")
	putManifest(t, r, vpc)
	s.must("state", "sign", "demo", "--yes", "-q")
	code, _, errs := s.run("plan", "demo")
	if code != 1 || strings.Count(errs, "error: ") != 2 || !strings.Contains(errs, "contains none of the 6 subnets") {
		t.Errorf("exit %d, want one finding: %s", code, errs)
	}
}

func putManifest(t *testing.T, r regiontest.Region, path string) {
	t.Helper()
	body, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	client := s3.NewFromConfig(r.AWSConfig(), func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := client.PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: sdk.String("slipway-test"), Key: sdk.String("demo/cluster.yaml"), Body: body,
	}); err != nil {
		t.Fatal(err)
	}
}

// TestLostVolumesAreNotRecreatedSilently: an etcd volume that somebody deleted is reported with what is left of
// the quorum, and only the flag creates an empty one.
func TestLostVolumesAreNotRecreatedSilently(t *testing.T) {
	for _, via := range []string{"direct", "cloudformation"} {
		t.Run(via, func(t *testing.T) {
			r := regiontest.Start(t)
			s := newShell(t, r)
			if via != "direct" {
				startFleet(t, r)
			}
			s.must("state", "init", "--yes")
			s.must("create", "cluster", "demo", "--zones", "us-east-1a,us-east-1b,us-east-1c", "--yes", "-q")
			s.must("apply", "demo", "--yes", "-q", "--via", via)
			lose := func(addr string) {
				h := newHand(t.Context(), r)
				if _, err := h.ec2.DeleteVolume(t.Context(), &ec2.DeleteVolumeInput{VolumeId: h.find(addr)}); err != nil {
					t.Fatal(err)
				}
			}
			lose("volume/etcd-b")
			const holds = "1 of 3 etcd volumes is gone (volume/etcd-b): 2 members remain, quorum holds; their data is not recreated"
			s.refused(r, holds, "plan", "demo")
			s.refused(r, holds, "apply", "demo", "--yes")
			lose("volume/etcd-c")
			const lost = "2 of 3 etcd volumes are gone (volume/etcd-b, volume/etcd-c): 1 member remains, quorum is lost: the Kubernetes API"
			s.refused(r, lost, "apply", "demo", "--yes")
			code, _, errs := s.run("apply", "demo", "--yes", "--recreate-lost-volumes")
			if code != 0 || !strings.Contains(errs, "warning: cluster/demo: etcd volumes") {
				t.Fatalf("exit %d: %s", code, errs)
			}
			s.must("plan", "demo")
			newHand(t.Context(), r).find("volume/etcd-b")
		})
	}
}
