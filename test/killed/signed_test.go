// SPDX-License-Identifier: Apache-2.0

package killed_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// writesSigned reports whether a request writes to the state store, or the revision of the signed documents to AWS.
func writesSigned(r *http.Request) bool {
	if writesState(r) {
		return true
	}

	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))

	return err == nil && bytes.Contains(body, []byte("Action=CreateTags")) && bytes.Contains(body, []byte("slipway.dev%2Frevision"))
}

// TestKilledChangesOfSignedDocuments kills commands that change signed documents at each write: of a document, of the
// signature, and of the revision in AWS. Whatever was written, all commands go on to work, and the next one of its kind leads to
// a state in which AWS has the revision of the signature, so that nobody can restore earlier documents. The short form kills in turn
// before and after a write; with SLIPWAY_LONG set (make long) it kills before and after each.
func TestKilledChangesOfSignedDocuments(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short, since it kills a command about thirty times")
	}

	r := regiontest.Start(t)
	p := newProgram(t, r)
	p.mustRun("state", "init", "--yes")
	p.mustRun("create", "cluster", "demo", "--zones", "us-east-1a", "--yes")
	p.mustRun(applyArgs...)
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}

		return path
	}

	config := file("config.json", `{"auths": {"registry.example.com": {"username": "u", "password": "p"}}}`)
	set := []string{"addons", "secrets", "set", "registry", "--name", "demo", "-f", config, "--yes"}
	remove := []string{"addons", "secrets", "delete", "registry", "--name", "demo", "--yes"}
	sign := []string{"state", "sign", "demo", "--yes"}
	manifest := p.mustRun("get", "cluster", "demo", "-o", "yaml")
	writeSize := func(size string) []string {
		text := strings.Replace(manifest, "recreateVolumesAfter: 10m", "recreateVolumesAfter: "+size, 1)
		if size != "10m" && text == manifest {
			t.Fatalf("the manifest has no recreateVolumesAfter:\n%s", manifest)
		}

		return []string{"replace", "-f", file("demo.yaml", text), "--yes"}
	}

	p.proxy.matches = writesSigned
	for _, c := range []struct {
		name          string
		prepare, args []string
	}{
		{"set a secret", nil, set},
		{"delete a secret", set, remove},
		{"replace a manifest", writeSize("10m"), writeSize("5m")},
		{"sign", nil, sign},
	} {
		p.run(c.prepare)
		writes, _, _ := p.runAndKill(0, false, c.args...)
		points := signedKillPoints(writes)
		if n := len(points); n < 2 || writes[points[n-1]-1] != "POST /" {
			t.Errorf("%s: the last write is not that of the revision: %q", c.name, writes)
		}

		for i, nth := range points {
			moments := []bool{i%2 == 1}
			if isLong() {
				moments = []bool{false, true}
			}

			for _, after := range moments {
				p.run(c.prepare)
				_, at, _ := p.runAndKill(nth, after, c.args...)
				p.unlockCluster()
				out := p.run([]string{"plan", "demo"}) + p.run([]string{"addons", "secrets", "list", "demo"}) + p.run(c.args)
				if strings.Contains(out, "is older than") || strings.Contains(out, "not signed") {
					t.Errorf("%s: killed at %s (after: %t): %s", c.name, at, after, out)
				}

				if signed, marked := signedRevision(t, r), markedRevision(t, r); signed == 0 || signed != marked {
					t.Errorf("%s: killed at %s (after: %t): revision %d is signed, and AWS has %d\n%s", c.name, at, after, signed, marked, out)
				}
			}
		}
	}
}

// signedKillPoints returns the numbers of the writes, from 1, without those of the lock and the journal, which
// TestKilledAtEveryWriteOfState covers.
func signedKillPoints(writes []string) []int {
	var out []int
	for i, write := range writes {
		if !strings.Contains(write, "/_operations/") {
			out = append(out, i+1)
		}
	}

	return out
}

// run runs slipway whether it succeeds or not, and returns what it prints.
func (p program) run(args []string) string {
	p.t.Helper()
	if args == nil {
		return ""
	}

	cmd := p.command(args...)
	p.proxy.mu.Lock()
	p.proxy.nth = 0
	p.proxy.mu.Unlock()
	out, _ := cmd.CombinedOutput() // the exit code is that of what it finds

	return string(out)
}

// signedRevision returns the revision of the signature in the state store.
func signedRevision(t *testing.T, r regiontest.Region) int64 {
	t.Helper()
	api := s3.NewFromConfig(r.AWSConfig(), func(o *s3.Options) { o.UsePathStyle = true })
	object, err := api.GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String("slipway-test"), Key: aws.String("demo/signature.json")})
	if err != nil {
		t.Fatal(err)
	}
	defer object.Body.Close()

	var signed struct{ Statement []byte }
	if err := json.NewDecoder(object.Body).Decode(&signed); err != nil {
		t.Fatal(err)
	}

	var statement struct{ Revision int64 }
	if err := json.Unmarshal(signed.Statement, &statement); err != nil {
		t.Fatal(err)
	}

	return statement.Revision
}

// markedRevision returns the revision in AWS.
func markedRevision(t *testing.T, r regiontest.Region) int64 {
	t.Helper()
	out, err := ec2.NewFromConfig(r.AWSConfig()).DescribeTags(t.Context(), &ec2.DescribeTagsInput{Filters: []ec2types.Filter{
		{Name: aws.String("key"), Values: []string{"slipway.dev/revision"}},
	}})
	if err != nil || len(out.Tags) != 1 {
		t.Fatalf("%d resources have a revision: %v", len(out.Tags), err)
	}

	revision, err := strconv.ParseInt(*out.Tags[0].Value, 10, 64)
	if err != nil {
		t.Fatal(err)
	}

	return revision
}
