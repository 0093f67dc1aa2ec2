// SPDX-License-Identifier: Apache-2.0

package killed_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// writesOwnership reports whether a request writes which cluster a name means: the record in the state store, or
// the token in AWS.
func writesOwnership(r *http.Request) bool {
	if strings.Contains(r.Header.Get("Authorization"), "/s3/") {
		return r.Method != http.MethodGet && r.Method != http.MethodHead && strings.HasSuffix(r.URL.Path, "/ownership.json")
	}

	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))

	return err == nil && bytes.Contains(body, []byte("slipway.dev%2Ftoken"))
}

// ownershipRecord is demo/ownership.json, as documented in docs/design/0010.
type ownershipRecord struct {
	ID          string `json:"id"`
	Token       string `json:"token"`
	FormerToken string `json:"formerToken"`
}

// readOwnership returns the record in the state store; zero if there is none.
func readOwnership(t *testing.T, r regiontest.Region) (out ownershipRecord) {
	t.Helper()
	api := s3.NewFromConfig(r.AWSConfig(), func(o *s3.Options) { o.UsePathStyle = true })
	object, err := api.GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String("slipway-test"), Key: aws.String("demo/ownership.json")})
	if err != nil {
		return out
	}
	defer object.Body.Close()
	if err := json.NewDecoder(object.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

// readMarks returns the id and the token of the etcd volume of slot a in AWS; empty if it does not exist. A volume that is
// being deleted is still listed for a moment.
func readMarks(t *testing.T, r regiontest.Region) (id, token string) {
	t.Helper()
	out, err := ec2.NewFromConfig(r.AWSConfig()).DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{Filters: []ec2types.Filter{
		{Name: aws.String("tag:slipway.dev/address"), Values: []string{"volume/etcd-a"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range out.Volumes {
		if v.State == ec2types.VolumeStateDeleting {
			continue
		}
		for _, tag := range v.Tags {
			switch *tag.Key {
			case "slipway.dev/id":
				id = *tag.Value
			case "slipway.dev/token":
				token = *tag.Value
			}
		}
	}
	return id, token
}

// resizeGroup changes the manifests, so that the next apply has something to do.
func resizeGroup(t *testing.T, p program) {
	t.Helper()
	text := p.mustRun("get", "groups", "demo", "-o", "yaml")
	at := strings.LastIndex(text, "maxSize: ") + len("maxSize: ") // that of the workers
	end := at + strings.Index(text[at:], "\n")
	n, err := strconv.Atoi(text[at:end])
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "groups.yaml")
	text = text[:at] + strconv.Itoa(n+1) + text[end:]
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p.mustRun("replace", "-f", file, "--name", "demo", "--yes")
}

// TestKilledAtEveryWriteOfOwnership kills the real program before and after each write of the cluster's id and token,
// in the state store and in AWS. The same command resumes, and the id never changes: another one would make the
// cluster reject its own resources. The short form kills after each write; with SLIPWAY_LONG set (make long) it
// kills also before each.
func TestKilledAtEveryWriteOfOwnership(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short, since it runs about fifty commands")
	}
	r := regiontest.Start(t)
	p := newProgram(t, r)
	p.proxy.matches = writesOwnership
	p.mustRun("state", "init", "--yes")
	destroy := append(slices.Clone(deleteArgs), "--destroy-data")
	moments := []bool{true}
	if isLong() {
		moments = []bool{false, true}
	}
	cases := 0

	// killEach kills a command at each of its writes and resumes it. Afterwards undo makes the command necessary
	// again.
	killEach := func(undo func(), args ...string) {
		for n, more := 1, true; more; n++ {
			for _, after := range moments {
				before := readOwnership(t, r)
				_, at, _ := p.runAndKill(n, after, args...)
				if more = at != ""; more {
					cases++
					p.unlockCluster()
					if args[0] != "delete" || slices.Contains(listStateKeys(t, r), "demo/cluster.yaml") {
						p.mustRun(args...)
					}
				}
				now := readOwnership(t, r)
				if before.ID != "" && now.ID != "" && now.ID != before.ID {
					t.Fatalf("%s killed at %s (after: %t): the id changed from %s to %s", args[0], at, after, before.ID, now.ID)
				}
				if id, token := readMarks(t, r); id != "" && (id != now.ID || token != now.Token && token != now.FormerToken) {
					t.Fatalf("%s killed at %s (after: %t): AWS has id %s and token %s, the state store %+v", args[0], at, after, id, token, now)
				}
				undo()
			}
		}
	}

	killEach(func() { p.mustRun(destroy...) }, createArgs...)
	p.mustRun(createArgs...)
	killEach(func() { // the next apply creates the volume with the token
		p.mustRun(destroy...)
		p.mustRun(createArgs...)
	}, applyArgs...)
	p.mustRun(applyArgs...)
	resizeGroup(t, p)
	killEach(func() { resizeGroup(t, p) }, applyArgs...)
	p.mustRun(applyArgs...)
	killEach(func() {
		p.mustRun(createArgs...)
		p.mustRun(applyArgs...)
	}, destroy...)
	fmt.Printf("COUNT crash at writes of ownership: %d cases (SIGKILL at each, in the state store and in AWS)\n", cases)
}
