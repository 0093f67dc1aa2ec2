// SPDX-License-Identifier: Apache-2.0

// Package planfile is the file that a plan is saved in, and what makes such a plan stale. It knows neither AWS nor the
// state store: what they hold is given to it as fingerprints. See docs/design/0008.
package planfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

const (
	// Format is what every such file says it is.
	Format = "slipway-plan"
	// Version of the format. A file of a higher one is refused.
	Version = 1
	// MaxSize is how large a file is read at all, in bytes: ten times what a plan of 100 groups takes.
	MaxSize = 64 << 20
)

// ClusterIdentity is what a plan is for.
type ClusterIdentity struct {
	Cluster   string `json:"cluster"`
	Account   string `json:"account"`
	Partition string `json:"partition"`
	Region    string `json:"region"`
	// Endpoint of AWS, where it is not AWS's own.
	Endpoint string `json:"endpoint,omitempty"`
	// State is the URL of the state store.
	State string `json:"state"`
}

// File is a saved plan. It holds fingerprints of what the plan was made from, no values, and no secret.
type File struct {
	Format        string `json:"format"`
	FormatVersion int    `json:"formatVersion"`
	// Tool is the version of the program that made it.
	Tool      string    `json:"tool"`
	CreatedAt time.Time `json:"made"`
	// CreatedBy is the person and the machine.
	CreatedBy string          `json:"by"`
	Identity  ClusterIdentity `json:"identity"`
	// Destroy says that it is the plan of a deletion. DestroyData is --destroy-data.
	Destroy     bool `json:"destroy"`
	DestroyData bool `json:"destroyData"`
	// Plan is a [plan.Document].
	Plan json.RawMessage `json:"plan"`
	// Documents are hashes of the cluster's documents in the state store, by key.
	Documents map[string]string `json:"documents"`
	// Actual is what existed, Wanted what was to be.
	Actual  plan.Fingerprints `json:"actual"`
	Desired plan.Fingerprints `json:"wanted"`
	// Digest is over all of the above. It finds damage; what was changed on purpose is found when the plan is made again.
	Digest string `json:"digest"`
}

// Encode returns the file's bytes. It fills in format, version and digest.
func (f File) Encode() ([]byte, error) {
	f.Format = Format
	f.FormatVersion = Version
	digest, err := f.computeDigest()
	if err != nil {
		return nil, err
	}

	f.Digest = digest
	body, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encode the plan: %w", err)
	}

	return append(body, '\n'), nil
}

func (f File) computeDigest() (string, error) {
	f.Digest = ""
	body, err := json.Marshal(f)
	if err != nil {
		return "", fmt.Errorf("encode the plan: %w", err)
	}

	sum := sha256.Sum256(body)

	return hex.EncodeToString(sum[:]), nil
}

// Parse reads a saved plan, and refuses what is none, is of a later format, or is not whole.
func Parse(body []byte) (File, error) {
	var head struct {
		Format        string `json:"format"`
		FormatVersion int    `json:"formatVersion"`
	}
	if err := json.Unmarshal(body, &head); err != nil || head.Format != Format {
		return File{}, diag.WithHint(
			errors.New("is no saved plan, or is damaged"),
			"make one with: slipway plan NAME --out FILE",
		)
	}

	if head.FormatVersion != Version {
		return File{}, diag.WithHint(
			fmt.Errorf("has format %d; this slipway reads format %d", head.FormatVersion, Version),
			"apply it with the slipway that made it, or make a new plan",
		)
	}

	var f File
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		return File{}, newDamagedError(err.Error())
	}

	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return File{}, newDamagedError("something comes after its end")
	}

	if digest, err := f.computeDigest(); err != nil || digest != f.Digest {
		return File{}, newDamagedError("its digest is not that of what it holds")
	}

	if f.Identity.Cluster == "" {
		return File{}, newDamagedError("it names no cluster")
	}

	if _, err := f.Document(); err != nil {
		return File{}, newDamagedError(err.Error())
	}

	return f, nil
}

func newDamagedError(why string) error {
	return diag.WithHint(
		fmt.Errorf("is damaged, or was changed after it was made: %s", why),
		"make a new plan",
	)
}

// Document returns the plan as data.
func (f File) Document() (plan.Document, error) {
	var d plan.Document
	if err := json.Unmarshal(f.Plan, &d); err != nil {
		return d, fmt.Errorf("read the plan in it: %w", err)
	}

	return d, nil
}

// IdentityMismatches lists in what the place where f is to be applied differs from the one that it was made for.
func (f File) IdentityMismatches(now ClusterIdentity) []string {
	var out []string
	for _, l := range []struct{ what, then, now string }{
		{"cluster", f.Identity.Cluster, now.Cluster},
		{"partition", f.Identity.Partition, now.Partition},
		{"account", f.Identity.Account, now.Account},
		{"region", f.Identity.Region, now.Region},
		{"endpoint", describeEndpoint(f.Identity.Endpoint), describeEndpoint(now.Endpoint)},
		{"state store", f.Identity.State, now.State},
	} {
		if l.then != l.now {
			out = append(out, fmt.Sprintf("it is for %s %s, not %s", l.what, l.then, l.now))
		}
	}

	return out
}

func describeEndpoint(url string) string {
	if url == "" {
		return "of AWS itself"
	}

	return url
}

// StaleReasons lists what is not any more as it was when f was made, where now is the plan as it is made now. It is empty only
// if both plans are the same to the last byte, so whoever applies now does exactly what f says.
func (f File) StaleReasons(now File) []string {
	if f.Tool != now.Tool {
		return []string{fmt.Sprintf("it was made by slipway %s; this is %s", f.Tool, now.Tool)}
	}

	var out []string
	for _, key := range unionKeys(f.Documents, now.Documents) {
		was := f.Documents[key]
		is := now.Documents[key]
		switch {
		case is == "":
			out = append(out, fmt.Sprintf("the state's document %s is gone", key))
		case was == "":
			out = append(out, fmt.Sprintf("the state's document %s is new", key))
		case was != is:
			out = append(out, fmt.Sprintf("the state's document %s changed", key))
		}
	}

	out = append(out, f.Actual.Differences(now.Actual)...)
	if len(out) > 0 {
		return out
	}

	for _, line := range f.Desired.Differences(now.Desired) {
		out = append(out, line+", by another agent, machine image or asset catalogue")
	}

	if len(out) > 0 {
		return out
	}

	if f.Destroy != now.Destroy || f.DestroyData != now.DestroyData || !equalJSON(f.Plan, now.Plan) {
		return append(out, f.explainStepDifferences(now)...)
	}

	return nil
}

// explainStepDifferences says in what the plans themselves differ, though all that they are made from is the same.
func (f File) explainStepDifferences(now File) []string {
	was, wasErr := f.Document()
	is, isErr := now.Document()
	if wasErr != nil || isErr != nil || slices.Equal(was.MachineStore, is.MachineStore) {
		return []string{"its steps are not those that follow from manifests and AWS: the file was changed"}
	}

	return []string{"the objects that machines read have changed in the machine store"}
}

func unionKeys(a, b map[string]string) []string {
	all := map[string]string{}
	maps.Copy(all, a)
	maps.Copy(all, b)

	return slices.Sorted(maps.Keys(all))
}

func equalJSON(a, b json.RawMessage) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}
