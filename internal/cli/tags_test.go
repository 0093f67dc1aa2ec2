// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// removeDigests gives a cluster the catalogue of an earlier slipway, which named images by their tags.
func removeDigests(t *testing.T, r regiontest.Region) {
	t.Helper()
	client := s3.NewFromConfig(r.AWSConfig(), func(o *s3.Options) { o.UsePathStyle = true })
	bucket, key := sdk.String("slipway-test"), sdk.String("demo/assets.yaml")
	object, err := client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: bucket, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	defer object.Body.Close()
	body, err := io.ReadAll(object.Body)
	if err != nil {
		t.Fatal(err)
	}
	catalog, err := asset.ParseCatalog(body)
	if err != nil {
		t.Fatal(err)
	}
	for i := range catalog.Images {
		catalog.Images[i].Digests = nil
	}
	if body, err = catalog.YAML(); err != nil {
		t.Fatal(err)
	}
	put := &s3.PutObjectInput{Bucket: bucket, Key: key, Body: bytes.NewReader(body)}
	if _, err := client.PutObject(t.Context(), put); err != nil {
		t.Fatal(err)
	}
}

// storeJoined stores what a machine does when the member of its slot has had data.
func storeJoined(t *testing.T, r regiontest.Region, slot string) {
	t.Helper()
	client := s3.NewFromConfig(r.AWSConfig(), func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := client.PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: sdk.String("slipway-test"), Key: sdk.String(node.EtcdJoinedKey("demo", slot)), Body: strings.NewReader("joined"),
	}); err != nil {
		t.Fatal(err)
	}
}

// TestTagsDoNotBlockRepairs: a cluster whose catalogue names images by their tags is not planned or applied, and the error has
// the one command that changes all of them. Until then, and without any registry, it is validated and rolled, and its lost
// etcd volumes are created again: those alone.
func TestTagsDoNotBlockRepairs(t *testing.T) {
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
			removeDigests(t, r)
			s.must("state", "sign", "demo", "--yes", "-q")
			s.registries = unreachable{}
			const command = "slipway get all demo -o yaml | slipway replace -f - --yes"
			for _, args := range [][]string{
				{"plan", "demo"}, {"apply", "demo", "--yes"}, {"apply", "demo", "--yes", "--recreate-lost-volumes"},
			} {
				code, _, errs := s.run(args...)
				if code != 1 || !strings.Contains(errs, "has no digest") || !strings.Contains(errs, command) {
					t.Errorf("%v: exit %d: %s", args, code, errs)
				}
			}
			for _, args := range [][]string{
				{"validate", "cluster", "demo"}, {"rolling-update", "cluster", "demo"}, {"get", "machines", "demo"}, {"etcd", "status", "demo"},
			} {
				if _, _, errs := s.run(args...); strings.Contains(errs, "digest") {
					t.Errorf("%v is blocked: %s", args, errs)
				}
			}

			storeJoined(t, r, "b")
			h := newHand(t.Context(), r)
			lost := h.find("volume/etcd-b")
			if _, err := h.ec2.DeleteVolume(t.Context(), &ec2.DeleteVolumeInput{VolumeId: lost}); err != nil {
				t.Fatal(err)
			}
			code, out, errs := s.run("plan", "demo", "--recreate-lost-volumes")
			if code != 2 || !strings.Contains(out, "Plan: 1 to add, 0 to change, 0 to destroy") || !strings.Contains(out, "volume/etcd-b") ||
				!strings.Contains(errs, command) {
				t.Fatalf("exit %d: %s%s", code, out, errs)
			}
			isChange := func(call string) bool {
				return !strings.HasPrefix(call, "s3:") && !strings.HasPrefix(call, "kms:") && !strings.HasSuffix(call, "Tags")
			}
			before := mutations(r, isChange)
			s.must("apply", "demo", "--yes", "--recreate-lost-volumes")
			if n := mutations(r, isChange) - before; n != 1 {
				t.Errorf("%d changes, want that of the volume alone", n)
			}
			if found := newHand(t.Context(), r).find("volume/etcd-b"); *found == *lost {
				t.Error("the lost volume is still listed")
			}

			s.registries = nil
			repin(t, s)
		})
	}
}

// repin runs the command that the error names, and compares the cluster with what it was before.
func repin(t *testing.T, s shell) {
	t.Helper()
	s.stdin = s.must("get", "all", "demo", "-o", "yaml")
	code, _, errs := s.run("replace", "-f", "-", "--yes")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, image := range []string{"pause", "kube-apiserver", "kube-proxy", "coredns", "flannel"} {
		if !strings.Contains(errs, "image "+image+" ") {
			t.Errorf("the change of image %s is not shown: %s", image, errs)
		}
	}
	if !strings.Contains(errs, "registry.k8s.io/pause:3.10.1 -> amd64 sha256:") {
		t.Errorf("the digest of pause is not shown: %s", errs)
	}
	s.must("apply", "demo", "--yes")
	if out := s.must("plan", "demo"); !strings.Contains(out, "demo is as its manifests want it") && !strings.Contains(out, "No changes") {
		t.Errorf("something differs after the digests were looked up: %s", out)
	}
}
