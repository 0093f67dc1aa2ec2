// SPDX-License-Identifier: Apache-2.0

// Package planfile defines the file in which a plan is saved, and detects when a saved plan is stale. It does
// not know AWS or the state store: their contents are passed in as fingerprints. See docs/design/0008.
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
	// Format is the value of [File.Format].
	Format = "slipway-plan"
	// Version of the format. A file of another version is rejected.
	Version = 1
	// MaxSize is the maximal size of a file in bytes: ten times that of a plan of 100 groups.
	MaxSize = 64 << 20
)

// ClusterIdentity identifies the cluster that a plan is for.
type ClusterIdentity struct {
	// Cluster is the cluster's name.
	Cluster string `json:"cluster"`
	// Account is the AWS account's 12 digits.
	Account string `json:"account"`
	// Partition such as aws or aws-us-gov.
	Partition string `json:"partition"`
	// Region such as us-east-1.
	Region string `json:"region"`
	// Endpoint is the URL of the AWS API; empty for AWS itself.
	Endpoint string `json:"endpoint,omitempty"`
	// State is the URL of the state store.
	State string `json:"state"`
}

// File is a saved plan. It contains the plan and fingerprints of its inputs, but no secrets.
type File struct {
	// Format is the constant of that name; set by [File.Encode].
	Format string `json:"format"`
	// FormatVersion is [Version]; set by [File.Encode].
	FormatVersion int `json:"formatVersion"`
	// Tool is the version of Slipway that created the file.
	Tool      string    `json:"tool"`
	CreatedAt time.Time `json:"made"`
	// CreatedBy is the person and the machine, as in me@host.
	CreatedBy string          `json:"by"`
	Identity  ClusterIdentity `json:"identity"`
	// Destroy is true for the plan of a deletion.
	Destroy bool `json:"destroy"`
	// DestroyData is the flag --destroy-data.
	DestroyData bool `json:"destroyData"`
	// RecreateLostVolumes is the flag --recreate-lost-volumes.
	RecreateLostVolumes bool `json:"recreateLostVolumes,omitempty"`
	// Plan is a [plan.Document].
	Plan json.RawMessage `json:"plan"`
	// Documents has the hashes of the cluster's documents in the state store, by key.
	Documents map[string]string `json:"documents"`
	// Actual has the fingerprints of the existing resources.
	Actual plan.Fingerprints `json:"actual"`
	// Desired has the fingerprints of the desired resources.
	Desired plan.Fingerprints `json:"wanted"`
	// Digest is the SHA-256 of all fields above; set by [File.Encode]. It detects damage. A deliberate change
	// is detected when the plan is computed again.
	Digest string `json:"digest"`
}

// Encode returns the content of the file. It sets Format, FormatVersion and Digest.
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

// Parse reads a saved plan. It rejects other files, other format versions and damaged plans; its errors have
// hints.
func Parse(body []byte) (File, error) {
	var head struct {
		Format        string `json:"format"`
		FormatVersion int    `json:"formatVersion"`
	}
	if err := json.Unmarshal(body, &head); err != nil || head.Format != Format {
		return File{}, diag.WithHint(
			errors.New("is not a saved plan, or is damaged"),
			"create one with: slipway plan NAME --out FILE",
		)
	}

	if head.FormatVersion != Version {
		return File{}, diag.WithHint(
			fmt.Errorf("has format %d; this slipway reads format %d", head.FormatVersion, Version),
			"apply it with the version of slipway that created it, or create a new plan",
		)
	}

	var f File
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		return File{}, newDamagedError(err.Error())
	}

	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return File{}, newDamagedError("it has data after its end")
	}

	if digest, err := f.computeDigest(); err != nil || digest != f.Digest {
		return File{}, newDamagedError("its digest does not match its content")
	}

	if f.Identity.Cluster == "" {
		return File{}, newDamagedError("it has no cluster name")
	}

	if _, err := f.Document(); err != nil {
		return File{}, newDamagedError(err.Error())
	}

	return f, nil
}

func newDamagedError(reason string) error {
	return diag.WithHint(
		fmt.Errorf("is damaged, or was changed after it was created: %s", reason),
		"create a new plan",
	)
}

// Document returns the plan in the file.
func (f File) Document() (plan.Document, error) {
	var d plan.Document
	if err := json.Unmarshal(f.Plan, &d); err != nil {
		return d, fmt.Errorf("read the plan in the file: %w", err)
	}

	return d, nil
}

// IdentityMismatches returns how now, the cluster that f would be applied to, differs from the one that f was
// created for.
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

// StaleReasons returns what has changed since f was created; now is the plan as it is computed now. The
// result is empty only if both plans are identical to the last byte, so that applying now does exactly what f
// shows.
func (f File) StaleReasons(now File) []string {
	if f.Tool != now.Tool {
		return []string{fmt.Sprintf("it was created by slipway %s; this is %s", f.Tool, now.Tool)}
	}

	var out []string
	for _, key := range unionKeys(f.Documents, now.Documents) {
		was := f.Documents[key]
		is := now.Documents[key]
		switch {
		case is == "":
			out = append(out, fmt.Sprintf("the document %s of the state was deleted", key))
		case was == "":
			out = append(out, fmt.Sprintf("the document %s of the state is new", key))
		case was != is:
			out = append(out, fmt.Sprintf("the document %s of the state changed", key))
		}
	}

	out = append(out, f.Actual.Differences(now.Actual)...)
	if len(out) > 0 {
		return out
	}

	for _, line := range f.Desired.Differences(now.Desired) {
		out = append(out, line+", because of another agent, machine image or asset catalogue")
	}

	if len(out) > 0 {
		return out
	}

	if f.Destroy != now.Destroy || f.DestroyData != now.DestroyData || !equalJSON(f.Plan, now.Plan) {
		return append(out, f.explainStepDifferences(now)...)
	}

	return nil
}

// explainStepDifferences returns how two plans differ whose inputs are the same.
func (f File) explainStepDifferences(now File) []string {
	was, wasErr := f.Document()
	is, isErr := now.Document()
	if wasErr == nil && isErr == nil && !slices.Equal(was.Unsigned, is.Unsigned) {
		return []string{"the documents that nobody has signed, and that apply signs, have changed"}
	}

	if wasErr != nil || isErr != nil || slices.Equal(was.MachineStore, is.MachineStore) {
		return []string{"its steps do not follow from the manifests and AWS: the file was changed"}
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
