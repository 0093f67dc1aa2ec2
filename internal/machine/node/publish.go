// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// The functions below return keys of the machine store, relative to the store's URL. IAM policies
// grant access by these prefixes.

// MachinePrefix returns the prefix of all objects that the cluster's machines read.
func MachinePrefix(cluster string) string { return cluster + "/machine/" }

// AgentPrefix returns the prefix of the agent binaries, which every machine may read.
func AgentPrefix(cluster string) string { return MachinePrefix(cluster) + "agent/" }

// FunctionPrefix returns the prefix of the code of the function that keeps DNS records. Only Lambda reads it, with the rights
// of the operator.
func FunctionPrefix(cluster string) string { return MachinePrefix(cluster) + "function/" }

// FunctionKey returns the key of the code of the function, a zip file with a hash.
func FunctionKey(cluster, sum string) string {
	return FunctionPrefix(cluster) + sum + "/slipway-dns.zip"
}

// DocumentPrefix returns the prefix that only machines of the given role may read.
func DocumentPrefix(cluster string, role v1alpha1.Role) string {
	if role == v1alpha1.RoleControlPlane {
		return MachinePrefix(cluster) + "controlplane/"
	}

	return MachinePrefix(cluster) + "worker/"
}

// SecretKey returns the key of a sealed secret, which only control-plane machines may read.
func SecretKey(cluster, name string) string { return MachinePrefix(cluster) + "secrets/" + name }

// SecretContext returns the KMS encryption context that binds a sealed secret to its cluster.
func SecretContext(cluster string) map[string]string {
	return map[string]string{"slipway.dev/cluster": cluster}
}

// EtcdPrefix returns the prefix of etcd's bootstrap marker and joined records. Control-plane
// machines may read and write it.
func EtcdPrefix(cluster string) string { return MachinePrefix(cluster) + "etcd/" }

// EtcdMarkerKey returns the key of the bootstrap marker, which a conditional write creates once per
// cluster.
func EtcdMarkerKey(cluster string) string { return EtcdPrefix(cluster) + "initialized" }

// EtcdJoinedKey returns the key of the record that a slot's etcd member has had data.
func EtcdJoinedKey(cluster, slot string) string { return EtcdPrefix(cluster) + "joined/" + slot }

// EtcdAbsentKey returns the key of the record that a slot is not in the control plane and etcd has no member of it.
func EtcdAbsentKey(cluster, slot string) string { return EtcdPrefix(cluster) + "absent/" + slot }

// EtcdNewVolumeKey returns the key of the record of the volume that a slot's machine has created after a loss.
func EtcdNewVolumeKey(cluster, slot string) string { return EtcdPrefix(cluster) + "created/" + slot }

// EtcdResizeKey returns the key of the record of what the removal of etcd members waits for.
func EtcdResizeKey(cluster string) string { return EtcdPrefix(cluster) + "resize" }

// EtcdGenerationPrefix returns the prefix of the restorations of etcd.
func EtcdGenerationPrefix(cluster string) string { return EtcdPrefix(cluster) + "generations/" }

// EtcdGenerationKey returns the key of a restoration, which a conditional write creates once. Keys sort by number.
func EtcdGenerationKey(cluster string, number int) string {
	return fmt.Sprintf("%s%06d", EtcdGenerationPrefix(cluster), number)
}

// EtcdRestoredKey returns the key of the record that a slot's member has data of a generation.
func EtcdRestoredKey(cluster string, number int, slot string) string {
	return fmt.Sprintf("%srestored/%06d/%s", EtcdPrefix(cluster), number, slot)
}

// EtcdQuorumReportPrefix returns the prefix of the reports that machines write while etcd has no quorum.
func EtcdQuorumReportPrefix(cluster string) string { return EtcdPrefix(cluster) + "quorum/" }

// EtcdQuorumReportKey returns the key of the report of a slot's machine.
func EtcdQuorumReportKey(cluster, slot string) string { return EtcdQuorumReportPrefix(cluster) + slot }

// Object is an object to upload to the machine store. Its key contains its hash, so it is
// immutable.
type Object struct {
	// Key relative to the store's URL.
	Key string
	// Body of a node document; nil for an agent.
	Body []byte
	// Agent reads the body of an agent binary, or the code of a function; zero for a node document.
	Agent AgentBinary
}

// readBody returns the object's body. It reads an agent binary from disk and checks it against the
// hash in the key.
func (o Object) readBody() ([]byte, error) {
	if o.Agent.Read == nil {
		return o.Body, nil
	}

	body, err := o.Agent.Read()
	if err != nil {
		return nil, err
	}

	if got := hexSHA256(body); got != o.Agent.SHA256 {
		return nil, fmt.Errorf(
			"the program changed after it was hashed: sha256 is %s, want %s; it was not uploaded",
			got,
			o.Agent.SHA256,
		)
	}

	return body, nil
}

// AgentBinary is the agent for one architecture. The binary is about 23 MB, so it is read only when
// it is uploaded.
type AgentBinary struct {
	// SHA256 of the binary in lower-case hex.
	SHA256 string
	// Read returns the whole binary.
	Read func() ([]byte, error)
}

// BootLocation tells the machines of a group where to download their agent and document.
type BootLocation struct {
	// AgentURL and AgentSHA256 (lower-case hex) of the agent binary.
	AgentURL, AgentSHA256 string
	// DocumentURL and DocumentSHA256 (lower-case hex) of the node document.
	DocumentURL, DocumentSHA256 string
}

// Publication is the set of objects that must exist in the machine store before machines boot.
type Publication struct {
	// Objects sorted by key.
	Objects []Object
	// BootLocations by group name.
	BootLocations map[string]BootLocation
	// Documents are the SHA-256 of the node documents by role and group name.
	Documents map[v1alpha1.Role]map[string]string
}

// PublicationInput is the input of BuildPublication.
type PublicationInput struct {
	// Documents of all groups.
	Documents []Document
	// Agents by architecture (amd64, arm64).
	Agents map[string]AgentBinary
	// Arch maps a group's name to the architecture of its machines.
	Arch map[string]string
	// StoreURL of the machine store, s3://bucket/prefix.
	StoreURL string
}

// BuildPublication returns the objects to upload and their locations by group. The same input gives
// the same bytes.
func BuildPublication(in PublicationInput) (Publication, error) {
	out := Publication{
		BootLocations: map[string]BootLocation{},
		Documents:     map[v1alpha1.Role]map[string]string{},
	}
	base := strings.TrimSuffix(in.StoreURL, "/") + "/"
	objects := map[string]Object{}

	for _, d := range in.Documents {
		arch := in.Arch[d.Group]
		agent, ok := in.Agents[arch]
		if !ok {
			return Publication{}, fmt.Errorf("group %s: no agent binary for architecture %q", d.Group, arch)
		}

		body, err := d.Marshal()
		if err != nil {
			return Publication{}, err
		}

		docSum := hexSHA256(body)
		agentKey := AgentPrefix(d.Cluster) + agent.SHA256 + "/slipway-node"
		docKey := DocumentKey(d.Cluster, d.Role, d.Group, docSum)
		objects[agentKey] = Object{Key: agentKey, Agent: agent}
		objects[docKey] = Object{Key: docKey, Body: body}
		if out.Documents[d.Role] == nil {
			out.Documents[d.Role] = map[string]string{}
		}

		out.Documents[d.Role][d.Group] = docSum
		out.BootLocations[d.Group] = BootLocation{
			AgentURL:       base + agentKey,
			AgentSHA256:    agent.SHA256,
			DocumentURL:    base + docKey,
			DocumentSHA256: docSum,
		}
	}

	for _, key := range slices.Sorted(maps.Keys(objects)) {
		out.Objects = append(out.Objects, objects[key])
	}

	return out, nil
}

func hexSHA256(body []byte) string {
	s := sha256.Sum256(body)
	return hex.EncodeToString(s[:])
}

// MissingObjects returns the objects that do not exist in the store. It lists each cluster's prefix
// once.
func MissingObjects(ctx context.Context, s store.Store, objects []Object) ([]Object, error) {
	exists := map[string]bool{}
	listed := map[string]bool{}
	var out []Object

	for _, o := range objects {
		prefix := o.Key[:strings.Index(o.Key, "/")+1] + "machine/"
		if !listed[prefix] {
			listed[prefix] = true
			keys, err := s.List(ctx, prefix)
			if err != nil {
				return nil, fmt.Errorf("list %s%s: %w", s.URL(), prefix, err)
			}

			for _, k := range keys {
				exists[k] = true
			}
		}

		if !exists[o.Key] {
			out = append(out, o)
		}
	}

	return out, nil
}

// PublishObjects uploads the missing objects and returns the keys that it wrote, also when some
// uploads failed. It is safe to run concurrently: keys contain the hash, so two writers of one key
// write the same bytes.
func PublishObjects(ctx context.Context, s store.Store, objects []Object) ([]string, error) {
	missing, err := MissingObjects(ctx, s, objects)
	if err != nil {
		return nil, err
	}

	errs := make([]error, len(missing))
	slots := make(chan struct{}, maxConcurrentWrites)
	var wg sync.WaitGroup

	for i, o := range missing {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := publishObject(ctx, s, o); err != nil {
				errs[i] = fmt.Errorf("publish %s: %w", o.Key, err)
			}
		})
	}

	wg.Wait()
	var written []string

	for i, o := range missing {
		if errs[i] == nil {
			written = append(written, o.Key)
		}
	}

	return written, errors.Join(errs...)
}

// CheckFunctionCode compares the published code of functions with what is to be published. Machines compare agents and
// documents with hashes that they know from elsewhere, but Lambda runs whatever the object contains.
func CheckFunctionCode(ctx context.Context, s store.Store, objects []Object) error {
	for _, o := range objects {
		cluster, _, _ := strings.Cut(o.Key, "/")
		if !strings.HasPrefix(o.Key, FunctionPrefix(cluster)) {
			continue
		}

		stored, err := s.Get(ctx, o.Key)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}

		if err != nil {
			return fmt.Errorf("compare the code of the function: %w", err)
		}

		if got := hexSHA256(stored.Body); got != o.Agent.SHA256 {
			return fmt.Errorf(
				"%s%s: sha256 is %s, want %s: it is not the code that slipway published; "+
					"find out who wrote it, delete it and rerun",
				s.URL(),
				o.Key,
				got,
				o.Agent.SHA256,
			)
		}
	}

	return nil
}

// maxConcurrentWrites limits the uploads that run at the same time.
const maxConcurrentWrites = 16

func publishObject(ctx context.Context, s store.Store, o Object) error {
	body, err := o.readBody()
	if err != nil {
		return err
	}

	_, err = s.Create(ctx, o.Key, body)
	if !errors.Is(err, store.ErrConflict) {
		return err
	}

	got, err := s.Get(ctx, o.Key)
	if err != nil {
		return err
	}

	if !bytes.Equal(got.Body, body) {
		return errors.New("the stored object does not match the hash in its key; delete it and rerun")
	}

	return nil
}
