// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/explain"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// checkSignature returns an error if the documents of d are not signed although they were, if they are older than those
// that were accepted last, or if another authority has signed them than that of the cluster. Load has compared them with
// their signature. What AWS has decides, which costs no call, else the key of the authority. See docs/design/0021.
func (session *Session) checkSignature(ctx context.Context, d *Desired, actual []plan.ActualResource) error {
	if err := CheckRevision(ctx, session, d.signed); err != nil {
		return err
	}

	public, issuer, err := loadIssuer(ctx, session, d)
	if err != nil {
		return err
	}

	machines := machineTrust{desired: d, trust: nodeTrust(public), inAWS: documentsInAWS(actual)}
	mayDecrypt := session.Operation != nil // else the caller may be a reader, and the apply decrypts

	if d.signed.Exists() {
		if machines.haveIssuer(ctx, issuer) || !mayDecrypt && len(machines.inAWS) == 0 {
			return nil
		}

		return session.checkAuthorityKey(ctx, d, issuer)
	}

	if machines.trustOthers(ctx) {
		return clusterstate.NewTamperedError(session.Name, d.View, pki.CertsObjectKey(session.Name))
	}

	if mayDecrypt {
		if err := session.checkAuthorityKey(ctx, d, issuer); err != nil {
			return err
		}
	}

	warnOfUnsigned(session, d)
	d.Unsigned, err = findUnsigned(ctx, session, d)

	return err
}

// findUnsigned returns the documents of a cluster without a signature, which an apply signs as they are: those that a plan is
// computed from, and those of add-ons. A reader may not read the latter, which can be secrets.
func findUnsigned(
	ctx context.Context,
	session *Session,
	d *Desired,
) ([]plan.UnsignedDocument, error) {
	sums, err := clusterstate.HashDocuments(ctx, d.View, session.Name)
	if err != nil {
		return nil, err
	}

	addons, err := clusterstate.HashAddons(ctx, d.View.Store, session.Name)
	if err != nil && (session.Operation != nil || !store.IsAccessDenied(err)) {
		return nil, err
	}

	if err != nil {
		addons = map[string]string{clusterstate.AddonPrefix(session.Name): ""}
	}

	maps.Copy(sums, addons)

	var out []plan.UnsignedDocument
	for _, key := range slices.Sorted(maps.Keys(sums)) {
		out = append(out, plan.UnsignedDocument{Key: key, SHA256: sums[key]})
	}

	return out, nil
}

// CheckAuthority compares the first certificate of the Kubernetes CA of d with its key.
func CheckAuthority(ctx context.Context, session *Session, d *Desired) error {
	_, issuer, err := loadIssuer(ctx, session, d)
	if err != nil {
		return err
	}

	return session.checkAuthorityKey(ctx, d, issuer)
}

// loadIssuer returns the certificates of d, and the first one (PEM) of its Kubernetes CA.
func loadIssuer(ctx context.Context, session *Session, d *Desired) (pki.PublicBundle, []byte, error) {
	public, err := pki.LoadPublicBundle(ctx, d.View, session.Name)
	if err != nil {
		return public, nil, err
	}

	issuer, err := public.Issuer(pki.KubernetesCA)

	return public, issuer, err
}

// CheckRevision compares the revision of the cluster's documents, which were compared with their signature, with the one that
// was accepted last. Call it after the resources in AWS were read.
func CheckRevision(ctx context.Context, session *Session, signed clusterstate.Signed) error {
	session.stateRevision = signed.Revision
	accepted := session.ownership.marks.Revision
	isTaken := session.Env.TakeOver != "" // on purpose, this is an earlier copy
	if isTaken || signed.Revision >= accepted {
		return nil
	}

	state, _, err := session.Env.Stores.State(ctx)
	if err != nil {
		return err
	}

	return newOlderError(ctx, state, session.Name, signed, accepted)
}

// checkAuthorityKey compares the certificate of the Kubernetes CA with its key.
func (session *Session) checkAuthorityKey(ctx context.Context, d *Desired, issuer []byte) error {
	ca, err := session.openKubernetesCA(ctx)
	if err != nil {
		return err
	}

	if !bytes.Equal(ca.Issuer(), issuer) {
		return clusterstate.NewAuthorityError(session.Name, d.View, ca.Issuer(), issuer)
	}

	if !d.signed.Exists() && ca.Key().SignsState() {
		return clusterstate.NewMissingSignatureError(session.Name, d.View)
	}

	return nil
}

// warnOfUnsigned warns that the documents of d have no signature.
func warnOfUnsigned(session *Session, d *Desired) {
	var findings diag.Findings
	findings.Warnf(
		"cluster/"+session.Name,
		"",
		"check that the manifests are yours; the next apply signs them",
		"has no signature in %s: whoever can write there could have changed its manifests and certificates",
		d.View.URL(),
	)
	session.Env.Warn(findings)
}

// machineTrust tells what the machines of a cluster trust: user data has the SHA-256 of their node documents, and whoever
// can only write to stores cannot change it.
type machineTrust struct {
	desired *Desired
	// trust of the desired node documents.
	trust node.TrustBundle
	// inAWS are the keys of the node documents that launch templates refer to, by their SHA-256.
	inAWS map[string]string
}

// all returns the certificates that the machines of each group trust. Desired documents come first, which need not be
// read. Documents that cannot be read are left out.
func (m machineTrust) all(ctx context.Context) iter.Seq[node.TrustBundle] {
	desired := map[string]bool{}
	for _, documents := range m.desired.documents {
		for _, sum := range documents {
			desired[sum] = true
		}
	}

	sums := slices.Sorted(maps.Keys(m.inAWS))
	known := func(sum string) bool { return desired[sum] }

	return func(yield func(node.TrustBundle) bool) {
		if slices.ContainsFunc(sums, known) && !yield(m.trust) {
			return
		}

		for _, sum := range slices.DeleteFunc(slices.Clone(sums), known) {
			trust, err := m.read(ctx, sum)
			if err == nil && !yield(trust) {
				return
			}
		}
	}
}

// read returns the certificates in a node document.
func (m machineTrust) read(ctx context.Context, sum string) (node.TrustBundle, error) {
	var document struct {
		Trust node.TrustBundle `json:"trust"`
	}

	o, err := m.desired.MachineStore.Get(ctx, m.inAWS[sum])
	if err != nil {
		return document.Trust, err
	}

	if hashOf(o.Body) != sum {
		return document.Trust, fmt.Errorf("%s is not the document in user data", o.Key)
	}

	err = json.Unmarshal(o.Body, &document)

	return document.Trust, err
}

// haveIssuer reports whether a certificate (PEM) is the first one of the Kubernetes CA of a group of machines.
func (m machineTrust) haveIssuer(ctx context.Context, issuer []byte) bool {
	for trust := range m.all(ctx) {
		public := pki.PublicBundle{CAs: map[string]string{pki.KubernetesCA: trust.KubernetesCA}}
		first, err := public.Issuer(pki.KubernetesCA)
		if err == nil && bytes.Equal(first, issuer) {
			return true
		}
	}

	return false
}

// trustOthers reports whether machines trust other certificates than the desired ones.
func (m machineTrust) trustOthers(ctx context.Context) bool {
	for trust := range m.all(ctx) {
		if differs(trust, m.trust) {
			return true
		}
	}

	return false
}

// differs reports whether a certificate that machines trust differs from the desired one. Workers trust fewer.
func differs(running, desired node.TrustBundle) bool {
	for _, pair := range [][2]string{
		{running.KubernetesCA, desired.KubernetesCA},
		{running.EtcdPeerCA, desired.EtcdPeerCA},
		{running.EtcdClientCA, desired.EtcdClientCA},
		{running.FrontProxyCA, desired.FrontProxyCA},
		{running.ServiceAccountKeys, desired.ServiceAccountKeys},
	} {
		if pair[0] != "" && pair[0] != pair[1] {
			return true
		}
	}

	return false
}

func hashOf(body []byte) string {
	sum := sha256.Sum256(body)

	return hex.EncodeToString(sum[:])
}

// documentsInAWS returns the keys of the node documents that launch templates refer to, by their SHA-256.
func documentsInAWS(actual []plan.ActualResource) map[string]string {
	out := map[string]string{}
	for _, a := range actual {
		template, ok := a.Resource.(awskind.LaunchTemplate)
		if !ok {
			continue
		}

		text := template.Data.UserData.String()
		if decoded, err := base64.StdEncoding.DecodeString(text); err == nil {
			text = string(decoded)
		}

		if sum, key, ok := explain.FindDocument(text); ok {
			out[sum] = key
		}
	}

	return out
}

// AdoptDocuments signs the documents of d if they have no signature, as the plan lists them, which an apply of them approves.
// Without an operation it does nothing.
func (session *Session) AdoptDocuments(ctx context.Context, d *Desired) error {
	if session.Operation == nil || session.State == nil || d.signed.Exists() {
		return nil
	}

	ca, err := session.openKubernetesCA(ctx)
	if err != nil {
		return err
	}

	sums, err := listedSums(session.Name, d.Unsigned)
	if err != nil {
		return err
	}

	state, err := operation.Fenced(ctx, session.State) // the signature is created once
	if err != nil {
		return err
	}

	signer := clusterstate.NewSigner(state, session.Name, ca.Key(), session.Env.Now().Unix(), clusterstate.Signed{})
	if err := signer.Finish(ctx, sums); err != nil {
		return err
	}

	d.signed = signer.Signed()
	d.View.AddObject(d.signed.Object)
	session.stateRevision = d.signed.Revision
	session.Env.Notifyf("signed the documents of cluster %s", session.Name)

	return nil
}

// listedSums returns the SHA-256 by key of the documents that a plan has listed.
func listedSums(name string, documents []plan.UnsignedDocument) (map[string]string, error) {
	if len(documents) == 0 {
		return nil, fmt.Errorf("sign the documents of cluster %s: no plan has listed them", name)
	}

	out := map[string]string{}
	for _, document := range documents {
		if document.SHA256 == "" {
			return nil, fmt.Errorf("sign cluster %s: you may not read %s", name, document.Key)
		}

		out[document.Key] = document.SHA256
	}

	return out, nil
}

// MarkRevision writes the revision of the signed documents to AWS, where MarkOwnership writes it if something changes.
func (session *Session) MarkRevision(ctx context.Context) error {
	marks := session.ownership.marks
	if session.Operation == nil || marks.Resource.ID == "" || session.stateRevision <= marks.Revision {
		return nil
	}

	return session.Cloud.SetTags(ctx, marks.Resource.ID, awskind.Tags{
		graph.StateRevisionTag: strconv.FormatInt(session.stateRevision, 10),
	})
}
