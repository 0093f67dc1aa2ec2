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

// Keys in the machine store, relative to the store's URL. IAM policies name these prefixes.

// MachinePrefix is the prefix of everything that machines of the cluster read.
func MachinePrefix(cluster string) string { return cluster + "/machine/" }

// AgentPrefix is readable by every machine.
func AgentPrefix(cluster string) string { return MachinePrefix(cluster) + "agent/" }

// DocumentPrefix is readable by the machines of that role only.
func DocumentPrefix(cluster string, role v1alpha1.Role) string {
	if role == v1alpha1.RoleControlPlane {
		return MachinePrefix(cluster) + "controlplane/"
	}

	return MachinePrefix(cluster) + "worker/"
}

// SecretKey is the key of a sealed secret, readable by control-plane machines only.
func SecretKey(cluster, name string) string { return MachinePrefix(cluster) + "secrets/" + name }

// SecretContext is the encryption context that binds a sealed secret to its cluster.
func SecretContext(cluster string) map[string]string {
	return map[string]string{"slipway.dev/cluster": cluster}
}

// EtcdPrefix holds the etcd marker and what members write; control-plane machines read and write it.
func EtcdPrefix(cluster string) string { return MachinePrefix(cluster) + "etcd/" }

// EtcdMarkerKey is written once, by a conditional write, when the cluster is born.
func EtcdMarkerKey(cluster string) string { return EtcdPrefix(cluster) + "initialized" }

// EtcdJoinedKey is written when a slot's member first has data.
func EtcdJoinedKey(cluster, slot string) string { return EtcdPrefix(cluster) + "joined/" + slot }

// Object is something to write to the machine store. Its key holds its hash, so it never changes.
type Object struct {
	Key string
	// Body is nil where Agent reads it.
	Body  []byte
	Agent AgentBinary
}

// readBody returns the object's body. That of an agent is read anew, and refused if it is not what its hash says.
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
			"the agent changed after its hash was taken: it has %s, not %s; nothing of it was written",
			got,
			o.Agent.SHA256,
		)
	}

	return body, nil
}

// AgentBinary is the agent's program for one architecture. It has some 23 MB, so it is read only when it is to be published.
type AgentBinary struct {
	SHA256 string
	Read   func() ([]byte, error)
}

// BootLocation is where a group's machines find their agent and document.
type BootLocation struct {
	AgentURL, AgentSHA256       string
	DocumentURL, DocumentSHA256 string
}

// Publication is what must be in the machine store before machines boot.
type Publication struct {
	// Objects sorted by key.
	Objects []Object
	// BootLocations by the name of the group.
	BootLocations map[string]BootLocation
}

// PublicationInput is what a publication is made of.
type PublicationInput struct {
	Documents []Document
	// Agents by architecture (amd64, arm64).
	Agents map[string]AgentBinary
	// Arch of a group's machines, by the group's name.
	Arch map[string]string
	// StoreURL of the machine store, s3://bucket/prefix.
	StoreURL string
}

// BuildPublication makes the objects and where each group finds them. The same input gives the same bytes.
func BuildPublication(in PublicationInput) (Publication, error) {
	out := Publication{BootLocations: map[string]BootLocation{}}
	base := strings.TrimSuffix(in.StoreURL, "/") + "/"
	objects := map[string]Object{}

	for _, d := range in.Documents {
		arch := in.Arch[d.Group]
		agent, ok := in.Agents[arch]
		if !ok {
			return Publication{}, fmt.Errorf("group %s: there is no agent for architecture %q", d.Group, arch)
		}

		body, err := d.Marshal()
		if err != nil {
			return Publication{}, err
		}

		docSum := hexSHA256(body)
		agentKey := AgentPrefix(d.Cluster) + agent.SHA256 + "/slipway-node"
		docKey := DocumentPrefix(d.Cluster, d.Role) + "documents/" + d.Group + "-" + docSum + ".json"
		objects[agentKey] = Object{Key: agentKey, Agent: agent}
		objects[docKey] = Object{Key: docKey, Body: body}
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

// MissingObjects returns the objects that the store does not hold.
func MissingObjects(ctx context.Context, s store.Store, objects []Object) ([]Object, error) {
	have := map[string]bool{}
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
				have[k] = true
			}
		}

		if !have[o.Key] {
			out = append(out, o)
		}
	}

	return out, nil
}

// PublishObjects writes the objects that are missing and returns their keys. Somebody else writing the same object at the
// same time is no error: the key holds the hash, so the bytes are the same.
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

// maxConcurrentWrites is how many objects are written at a time.
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
		return errors.New("another object lies under the key of this hash; delete it")
	}

	return nil
}
