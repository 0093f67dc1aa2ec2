// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// joinedNote is what lies under a slot's joined key.
type joinedNote struct {
	Volume string `json:"volume"`
}

// member is this machine's etcd member.
type member struct {
	agent *Agent
	store store.Store
	slot  node.Slot
	// volume is the id of the mounted volume, once known.
	volume string
}

func (m *member) hasData() bool { return m.agent.Root.Exists(etcd.DataDir + "/member") }

// manager asks and changes the membership with a client certificate of its own.
func (a *Agent) manager() etcd.Manager {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(a.doc.Trust.EtcdClientCA))
	leaf := pki.Leaf{CN: "slipway-node", Usages: []pki.Usage{pki.Client}, TTL: LeafTTL}
	pair := memoryPair(a.bundle, pki.EtcdClientCA, leaf, a.Now)
	m := etcd.Manager{TLS: &tls.Config{
		RootCAs: roots, MinVersion: tls.VersionTLS13,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair() },
	}}
	for _, s := range a.doc.Slots {
		m.Peers = append(m.Peers, etcd.Peer{Slot: s.Name, PeerURL: s.PeerURL, ClientURL: "https://" + s.Host + ":2379"})
	}
	return m
}

// mount mounts the slot's volume.
func (m *member) mount(ctx context.Context) error {
	known, err := m.note(ctx)
	if err != nil {
		return err
	}
	a := m.agent
	mounter := Mounter{
		Cloud: a.cloud(), Root: a.Root, Run: a.Run, Me: a.me, Slot: m.slot.Name, KnownVolume: known.Volume,
	}
	m.volume, err = mounter.Mount(ctx)
	if err != nil {
		return err
	}
	return a.Root.MakeDir(etcd.DataDir, 0o700, etcdUID)
}

func (m *member) note(ctx context.Context) (joinedNote, error) {
	var n joinedNote
	o, err := m.store.Get(ctx, node.EtcdJoinedKey(m.agent.doc.Cluster, m.slot.Name))
	if errors.Is(err, store.ErrNotFound) {
		return n, nil
	}
	if err != nil {
		return n, err
	}
	if err := json.Unmarshal(o.Body, &n); err != nil {
		return n, fmt.Errorf("read %s: %w", o.Key, err)
	}
	return n, nil
}

// facts gathers what a decision needs. With data on the volume that is nothing from outside: a member must come
// back while S3 is away.
func (m *member) facts(ctx context.Context) (etcd.Facts, error) {
	a := m.agent
	f := etcd.Facts{Slot: m.slot.Name, Volume: m.volume, HasData: m.hasData()}
	for _, s := range a.doc.Slots {
		f.Slots = append(f.Slots, s.Name)
	}
	if f.HasData {
		return f, nil
	}
	marker, err := m.marker(ctx)
	if err != nil {
		return f, err
	}
	f.Marker = marker
	keys, err := m.store.List(ctx, node.EtcdJoinedKey(a.doc.Cluster, ""))
	if err != nil {
		return f, err
	}
	for _, k := range keys {
		f.Joined = append(f.Joined, path.Base(k))
	}
	volumes, err := a.cloud().Volumes(ctx)
	if err != nil {
		return f, err
	}
	f.Visible = visible(volumes, m.slot.Name, m.volume)
	if marker == nil || marker.Volumes[f.Slot] != f.Volume || slices.Contains(f.Joined, f.Slot) {
		f.Members = a.manager().Members(ctx, f.Slot)
	}
	return f, nil
}

// visible chooses each slot's volume, the oldest; ours is the one we have.
func visible(volumes []Volume, slot, own string) map[string]string {
	out := map[string]string{}
	for _, v := range volumes {
		if out[v.Slot] == "" && (v.State == "available" || v.State == "in-use") {
			out[v.Slot] = v.ID
		}
	}
	if own != "" {
		out[slot] = own
	}
	return out
}

func (m *member) marker(ctx context.Context) (*etcd.Marker, error) {
	o, err := m.store.Get(ctx, node.EtcdMarkerKey(m.agent.doc.Cluster))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil //nolint:nilnil // no marker is a fact of its own
	}
	if err != nil {
		return nil, err
	}
	var marker etcd.Marker
	if err := json.Unmarshal(o.Body, &marker); err != nil {
		return nil, fmt.Errorf("read %s: %w", o.Key, err)
	}
	return &marker, nil
}

// step decides and acts once. It returns nil when etcd has been started, a waitError when there is more to do.
func (m *member) step(ctx context.Context) error {
	f, err := m.facts(ctx)
	if err != nil {
		return err
	}
	manager := m.agent.manager()
	switch action := etcd.Decide(f); action.Do {
	case etcd.CreateMarker:
		return m.createMarker(ctx, f)
	case etcd.StartNew:
		return m.start(ctx, etcd.Start{Members: m.founders(), Token: f.Marker.Token, New: true, Empty: true})
	case etcd.StartExisting:
		return m.start(ctx, etcd.Start{Members: m.founders()})
	case etcd.StartJoining:
		return m.start(ctx, etcd.Start{Members: m.current(f.Members), Token: f.Marker.Token, Empty: true})
	case etcd.RemoveMember:
		return again(manager.Remove(ctx, f.Slot, action.MemberID), action.Reason)
	case etcd.AddLearner:
		return again(manager.AddLearner(ctx, f.Slot, m.slot.PeerURL), action.Reason)
	default:
		return waitFor("%s", action.Reason)
	}
}

// again is a step that another decision follows.
func again(err error, reason string) error {
	if err != nil {
		return err
	}
	return waitFor("%s", reason)
}

func (m *member) createMarker(ctx context.Context, f etcd.Facts) error {
	body, err := json.Marshal(etcd.NewMarker(rand.Text(), f.Visible))
	if err != nil {
		return fmt.Errorf("print etcd marker: %w", err)
	}
	_, err = m.store.Create(ctx, node.EtcdMarkerKey(m.agent.doc.Cluster), body)
	if err != nil && !errors.Is(err, store.ErrConflict) {
		return err
	}
	return waitFor("the cluster is being born")
}

func (m *member) founders() map[string]string {
	out := map[string]string{}
	for _, s := range m.agent.doc.Slots {
		out[s.Member] = s.PeerURL
	}
	return out
}

// current is the membership that a joining member must name exactly, itself included.
func (m *member) current(members []etcd.Member) map[string]string {
	out := map[string]string{}
	for _, e := range members {
		if s, ok := m.agent.doc.Slot(e.Slot); ok {
			out[s.Member] = s.PeerURL
		}
	}
	return out
}

func (m *member) start(ctx context.Context, s etcd.Start) error {
	a := m.agent
	changed, err := a.writeFiles([]File{
		{Path: etcd.EnvironmentFile, Body: etcd.Environment(s), Mode: 0o600},
		{Path: "/etc/systemd/system/etcd.service", Mode: 0o600, Body: []byte(etcd.Unit(etcd.Config{
			Programs: a.doc.ProgramsDir(),
			Name:     m.slot.Member, Host: m.slot.Host, PeerHosts: m.hosts(),
			HeartbeatMS: a.doc.Etcd.HeartbeatIntervalMS, ElectionMS: a.doc.Etcd.ElectionTimeoutMS,
		}))},
	})
	if err != nil {
		return err
	}
	if err := a.reload(ctx, changed); err != nil {
		return err
	}
	return a.startUnit(ctx, "etcd", false)
}

func (m *member) hosts() []string {
	out := make([]string, 0, len(m.agent.doc.Slots))
	for _, s := range m.agent.doc.Slots {
		out = append(out, s.Host)
	}
	return out
}

// settle notes that the member has data, forbids systemd to ever start it empty again, and promotes a learner.
func (m *member) settle(ctx context.Context) error {
	if !m.hasData() {
		return waitFor("etcd has not made its data yet")
	}
	if _, err := m.agent.Root.Write(File{Path: etcd.EnvironmentFile, Body: etcd.Environment(etcd.Start{Members: m.founders()}), Mode: 0o600}); err != nil {
		return err
	}
	if m.volume == "" { // EC2 or S3 was away when the agent started
		if err := m.mount(ctx); err != nil {
			return err
		}
	}
	have, err := m.note(ctx)
	if err != nil || have.Volume == m.volume {
		return err
	}
	body, err := json.Marshal(joinedNote{Volume: m.volume})
	if err != nil {
		return fmt.Errorf("print joined note: %w", err)
	}
	_, err = m.store.Put(ctx, node.EtcdJoinedKey(m.agent.doc.Cluster, m.slot.Name), body)
	return err
}
