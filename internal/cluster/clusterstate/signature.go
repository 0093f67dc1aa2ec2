// SPDX-License-Identifier: Apache-2.0

package clusterstate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

const (
	// statementVersion is the version of the format of [statement]. A statement without documents of add-ons, which
	// earlier versions of Slipway do not know, has the one before.
	statementVersion = 2
	// statementPurpose distinguishes statements from other messages that the Kubernetes CA signs.
	statementPurpose = "documents of the state"
)

// ErrTampered is wrapped by errors about documents that nobody has signed who may change the cluster.
var ErrTampered = errors.New("not signed by an operator of the cluster")

// SignatureKey returns the key of the signature of a cluster's documents. See docs/design/0021.
func SignatureKey(cluster string) string { return cluster + "/signature.json" }

// statement is what is signed: the content of the documents that a plan is computed from.
type statement struct {
	Version int    `json:"version"`
	Cluster string `json:"cluster"`
	// Revision rises with each statement.
	Revision int64 `json:"revision"`
	// Documents have the SHA-256 of each document by key, empty for one that does not exist. While a document is being
	// changed it has two: the store writes one object at a time.
	Documents map[string][]string `json:"documents"`
}

// signedStatement is the stored form.
type signedStatement struct {
	// Statement is the JSON of a statement. It is the signed text.
	Statement []byte `json:"statement"`
	// Signature of the Kubernetes CA.
	Signature []byte `json:"signature"`
}

// Signed are the documents of a cluster, which are those that an operator has signed. It is zero for a cluster without a
// signature, whose documents may be anybody's.
type Signed struct {
	// Revision of the signature.
	Revision int64
	// Documents have the SHA-256 of each document, by key.
	Documents map[string]string
	// Addons have what is signed about the documents of add-ons, by key, as a statement has it: [VerifyDocuments] does not
	// read them.
	Addons map[string][]string
	// Issuer is the certificate (PEM) of the key that signed.
	Issuer []byte
	// Object that has the signature.
	Object store.Object
}

// Exists reports whether the documents are signed.
func (s Signed) Exists() bool { return s.Object.ETag != "" }

// refresher is a store that has copies of objects, such as [store.View].
type refresher interface {
	Refresh(ctx context.Context) error
}

// VerifyDocuments checks all documents of a cluster that a plan is computed from, those of [HashDocuments], against their
// signature. If the signature is
// valid for another authority than the cluster's own, it is not noticed here: the caller compares [pki.PublicBundle.Issuer]
// with something that is not in the store. The error wraps [ErrTampered].
func VerifyDocuments(ctx context.Context, s store.Store, cluster string) (Signed, error) {
	var out Signed
	err := verifyTwice(ctx, s, func() (err error) {
		found, err := HashDocuments(ctx, s, cluster)
		if err != nil {
			return err
		}

		out, err = verifyFound(ctx, s, cluster, found, func(key string) bool { return !isAddonKey(cluster, key) })

		return err
	})

	return out, err
}

// verifyManifests is VerifyDocuments for manifests that were read: no other document is checked.
func verifyManifests(ctx context.Context, s store.Store, cluster string, objects []store.Object) error {
	found := map[string]string{}
	for _, o := range objects {
		found[o.Key] = hashOf(o.Body)
	}

	_, err := verifyFound(ctx, s, cluster, found, func(key string) bool {
		return key == manifest.ClusterKey(cluster) || strings.HasPrefix(key, manifest.GroupKey(cluster, ""))
	})

	return err
}

// verifyTwice repeats a check that fails because documents are not those that were signed: another process may have changed
// them in between, and a view may have a copy that somebody else put into its index.
func verifyTwice(ctx context.Context, s store.Store, check func() error) error {
	err := check()
	if !errors.Is(err, ErrTampered) {
		return err
	}

	if copies, ok := s.(refresher); ok {
		if refreshError := copies.Refresh(ctx); refreshError != nil {
			return errors.Join(err, refreshError)
		}
	}

	return check()
}

// LoadTrust reads the certificates of a cluster. Those that nobody has signed are left out: of a cluster without a
// signature, all but those whose keys the cluster has.
func LoadTrust(ctx context.Context, s store.Store, cluster string) (pki.PublicBundle, error) {
	var public pki.PublicBundle
	err := verifyTwice(ctx, s, func() error {
		certs, err := s.Get(ctx, pki.CertsObjectKey(cluster))
		if err != nil {
			return err
		}

		if public, err = pki.ParsePublicBundle(certs); err != nil {
			return err
		}

		found := map[string]string{certs.Key: hashOf(certs.Body)}
		signed, err := verifyFound(ctx, s, cluster, found, func(key string) bool { return key == certs.Key })
		if err != nil || signed.Exists() {
			return err
		}

		public, err = public.WithIssuersOnly()

		return err
	})

	return public, err
}

// verifyFound compares the SHA-256 of documents, by key, with the signature. checks reports whether a document that was
// signed has to be among them.
func verifyFound(
	ctx context.Context,
	s store.Store,
	cluster string,
	found map[string]string,
	checks func(key string) bool,
) (Signed, error) {
	signed, out, err := readStatement(ctx, s, cluster)
	if err != nil || !out.Exists() {
		return Signed{}, err
	}

	var wrong []string
	for key, sum := range found {
		if !slices.Contains(signed.Documents[key], sum) {
			wrong = append(wrong, key)
		}
	}

	for key, sums := range signed.Documents {
		if found[key] == "" && checks(key) && !slices.Contains(sums, "") {
			wrong = append(wrong, key)
		}
	}

	if len(wrong) > 0 {
		slices.Sort(wrong)
		return Signed{}, NewTamperedError(cluster, s, strings.Join(slices.Compact(wrong), ", "))
	}

	out.Documents = found
	out.Addons = signed.addons(found)

	return out, nil
}

// NewTamperedError returns the error about objects that nobody has signed.
func NewTamperedError(cluster string, s store.Store, objects string) error {
	return diag.WithHint(
		fmt.Errorf("%s in %s: %w", objects, s.URL(), ErrTampered),
		"find out who wrote it, and restore the earlier version; if the change is yours: slipway state sign "+cluster,
	)
}

// NewMissingSignatureError returns the error about a cluster whose signature was deleted.
func NewMissingSignatureError(cluster string, s store.Store) error {
	return diag.WithHint(
		fmt.Errorf("%s does not exist in %s: the documents of the cluster are %w", SignatureKey(cluster), s.URL(), ErrTampered),
		"find out who deleted it, and restore the earlier versions; if all manifests are yours: slipway state sign "+cluster,
	)
}

// NewAuthorityError returns the error about a Kubernetes CA (PEM) that is not the cluster's own.
func NewAuthorityError(cluster string, s store.Store, own, found []byte) error {
	return diag.WithHint(
		fmt.Errorf(
			"%s in %s has another %s than the cluster: sha256 %s, not %s: %w",
			pki.CertsObjectKey(cluster),
			s.URL(),
			pki.KubernetesCA,
			pki.Fingerprint(found),
			pki.Fingerprint(own),
			ErrTampered,
		),
		"find out who wrote it, and restore the earlier versions of the state of the cluster",
	)
}

// NewRollbackError returns the error about documents that are older than those that were accepted last.
func NewRollbackError(cluster string, s store.Store, accepted int64) error {
	return diag.WithHint(
		fmt.Errorf(
			"%s in %s is older than the one that was accepted last, which has revision %d",
			SignatureKey(cluster),
			s.URL(),
			accepted,
		),
		"find out who restored earlier manifests; if you did, review them and run: slipway state sign "+cluster,
	)
}

// readStatement returns the signed statement, and what is signed without its documents. The latter is zero if there is no
// signature.
func readStatement(ctx context.Context, s store.Store, cluster string) (statement, Signed, error) {
	o, err := s.Get(ctx, SignatureKey(cluster))
	if errors.Is(err, store.ErrNotFound) {
		return statement{}, Signed{}, nil
	}

	if err != nil {
		return statement{}, Signed{}, explainUnreadable(err, cluster)
	}

	public, err := pki.LoadPublicBundle(ctx, s, cluster)
	if errors.Is(err, store.ErrNotFound) {
		return statement{}, Signed{}, NewTamperedError(cluster, s, pki.CertsObjectKey(cluster))
	}

	if err != nil {
		return statement{}, Signed{}, err
	}

	issuer, err := public.Issuer(pki.KubernetesCA)
	if err != nil {
		return statement{}, Signed{}, NewTamperedError(cluster, s, pki.CertsObjectKey(cluster))
	}

	out, err := parseStatement(o.Body, cluster, issuer)
	if errors.Is(err, ErrTampered) {
		return statement{}, Signed{}, NewTamperedError(cluster, s, o.Key)
	}

	return out, Signed{Revision: out.Revision, Issuer: issuer, Object: o}, err
}

// ReadSignature returns what was signed last, whatever the documents are now. The object alone is set if the signature is
// not valid.
func ReadSignature(ctx context.Context, s store.Store, cluster string) (Signed, error) {
	signed, out, err := readStatement(ctx, s, cluster)
	if errors.Is(err, ErrTampered) {
		o, err := s.Get(ctx, SignatureKey(cluster))

		return Signed{Object: o}, err
	}

	if err != nil || !out.Exists() {
		return Signed{}, err
	}

	out.Documents = map[string]string{}
	for key, sums := range signed.Documents {
		if last := sums[len(sums)-1]; last != "" {
			out.Documents[key] = last
		}
	}

	return out, nil
}

// explainUnreadable adds a hint to the error of a reader whose policy is from before there were signatures.
func explainUnreadable(err error, cluster string) error {
	if !store.IsAccessDenied(err) {
		return err
	}

	return diag.WithHint(err, "attach the policies of: slipway iam operator-policy "+cluster+" --read-only")
}

// parseStatement decodes a statement that the key of a certificate (PEM) has signed. It is the first one of the
// Kubernetes CA: somebody may have added the others.
func parseStatement(body []byte, cluster string, issuer []byte) (statement, error) {
	var signed signedStatement
	if err := json.Unmarshal(body, &signed); err != nil {
		return statement{}, fmt.Errorf("%w: %w", ErrTampered, err)
	}

	if err := pki.VerifyMessage(issuer, statementPurpose, signed.Statement, signed.Signature); err != nil {
		return statement{}, fmt.Errorf("%w: %w", ErrTampered, err)
	}

	var out statement
	if err := json.Unmarshal(signed.Statement, &out); err != nil {
		return statement{}, fmt.Errorf("decode the signed statement: %w", err)
	}

	if out.Version > statementVersion {
		return statement{}, diag.WithHint(
			fmt.Errorf("%s has the unknown format version %d", SignatureKey(cluster), out.Version),
			"upgrade slipway",
		)
	}

	for key, sums := range out.Documents {
		if len(sums) == 0 {
			return statement{}, fmt.Errorf("%w: %s has no hash", ErrTampered, key)
		}
	}

	if out.Cluster != cluster {
		return statement{}, fmt.Errorf("%w: it is the signature of cluster %s", ErrTampered, out.Cluster)
	}

	return out, nil
}

// encodeSigned returns the object with a signed statement.
func encodeSigned(st statement, key pki.Key) (store.Object, error) {
	st.Version = 1
	for key := range st.Documents {
		if isAddonKey(st.Cluster, key) {
			st.Version = statementVersion
		}
	}

	body, err := json.Marshal(st)
	if err != nil {
		return store.Object{}, fmt.Errorf("encode the statement about cluster %s: %w", st.Cluster, err)
	}

	signature, err := key.SignMessage(statementPurpose, body)
	if err != nil {
		return store.Object{}, err
	}

	out, err := json.MarshalIndent(signedStatement{Statement: body, Signature: signature}, "", "  ")
	if err != nil {
		return store.Object{}, fmt.Errorf("encode the signature of cluster %s: %w", st.Cluster, err)
	}

	return store.Object{Key: SignatureKey(st.Cluster), Body: append(out, '\n')}, nil
}

// Signer keeps the signature of a cluster's documents valid while they change, also if the program is killed in between.
type Signer struct {
	store   store.Store
	cluster string
	key     pki.Key
	now     int64
	signed  Signed
}

// NewSigner returns a signer of the documents of a cluster, which were verified. key is that of the Kubernetes CA. s is
// written to on condition of the version that was read. now is the time in seconds: a revision is at least that, so that
// a lost signature does not lower it.
func NewSigner(s store.Store, cluster string, key pki.Key, now int64, signed Signed) *Signer {
	return &Signer{store: s, cluster: cluster, key: key, now: now, signed: signed}
}

// Signed returns the documents as they were signed last.
func (s *Signer) Signed() Signed { return s.signed }

// Begin signs documents (SHA-256 by key; empty: it is deleted) that are about to be written, next to those that they
// replace. Call Finish with the same documents when they are written.
func (s *Signer) Begin(ctx context.Context, changes map[string]string) error {
	documents := s.list(s.signed.Documents, s.signed.Addons)
	for key, sum := range changes {
		if documents[key] == nil {
			documents[key] = []string{""}
		}

		documents[key] = append(slices.Clone(documents[key]), sum)
	}

	return s.write(ctx, documents, s.signed)
}

// Finish signs documents that were written.
func (s *Signer) Finish(ctx context.Context, changes map[string]string) error {
	after := Signed{Documents: maps.Clone(s.signed.Documents), Addons: maps.Clone(s.signed.Addons)}
	if after.Documents == nil {
		after.Documents = map[string]string{}
	}

	maps.Copy(after.Documents, changes)
	maps.DeleteFunc(after.Documents, func(_, sum string) bool { return sum == "" })
	maps.DeleteFunc(after.Addons, func(key string, _ []string) bool { _, isChanged := changes[key]; return isChanged })

	return s.write(ctx, s.list(after.Documents, after.Addons), after)
}

// list returns the documents of a statement.
func (*Signer) list(documents map[string]string, addons map[string][]string) map[string][]string {
	out := map[string][]string{}
	maps.Copy(out, addons)
	for key, sum := range documents {
		out[key] = []string{sum}
	}

	return out
}

// write signs documents, of which now is what is signed afterwards.
func (s *Signer) write(ctx context.Context, documents map[string][]string, now Signed) error {
	o, err := s.encode(documents)
	if err != nil {
		return err
	}

	if o, err = ReplaceObject(ctx, s.store, o, s.signed.Object); err != nil {
		return err
	}

	s.signed = Signed{
		Revision:  s.nextRevision(),
		Documents: now.Documents,
		Addons:    now.Addons,
		Issuer:    s.signed.Issuer,
		Object:    o,
	}

	return nil
}

func (s *Signer) nextRevision() int64 { return max(s.signed.Revision+1, s.now) }

func (s *Signer) encode(documents map[string][]string) (store.Object, error) {
	return encodeSigned(
		statement{Cluster: s.cluster, Revision: s.nextRevision(), Documents: documents},
		s.key,
	)
}

// SignNew returns the object with the signature of the documents of a cluster that is being created.
func (s *Signer) SignNew(objects []store.Object) (store.Object, error) {
	documents := map[string][]string{}
	for _, o := range objects {
		documents[o.Key] = []string{hashOf(o.Body)}
	}

	return s.encode(documents)
}
