// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"filippo.io/age"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// SettingsKey is the key of the settings of a store.
const SettingsKey = "slipway-state.json"

const settingsVersion = 1

// Settings of a store. Initialization creates them. They contain no secret in plaintext.
type Settings struct {
	// Version of the format: 1.
	Version int `json:"version"`
	// KMSKeyARN is the key that encrypts the secrets of a store in S3.
	KMSKeyARN string `json:"kmsKeyArn,omitempty"`
	// MachineBoundaryARN is the permissions boundary of the IAM roles of machines that read a store
	// in S3. Empty for a store of an older slipway; 'state init' then adds it.
	MachineBoundaryARN string `json:"machineBoundaryArn,omitempty"`
	// Recipient is the public age key with which the secrets of a store in a folder are encrypted.
	Recipient string `json:"recipient,omitempty"`
	// Identity is the private age key of the recipient, encrypted with the passphrase. It is empty
	// if the private key is in a key file.
	Identity []byte `json:"identity,omitempty"`
}

// Options configure access to a store and its keys.
type Options struct {
	// AWS returns the AWS configuration. It is called for stores in S3 only.
	AWS func(context.Context) (aws.Config, error)
	// KeyFile is the path of the file with the age identity of a store in a folder.
	KeyFile string
	// Passphrase decrypts the identity in the settings of a store in a folder, if there is no key
	// file.
	Passphrase string
	// Owner returns the account that must own the bucket of a store in S3, of 12 digits. Nil: any
	// account.
	Owner func(ctx context.Context, cfg aws.Config) (account string, err error)
	// Boundary creates the permissions boundary of machines that read a store in S3, or finds it,
	// and returns its ARN. Nil: none. Only [PlanInit] calls it.
	Boundary func(ctx context.Context, cfg aws.Config, at Location) (arn string, err error)
	// ReportWaiting shows the user what the initialization of a store waits for, in one line. Nil:
	// nothing is shown.
	ReportWaiting func(message string)
}

// Location is a parsed store URL.
type Location struct {
	// Dir is the absolute path of a store in a folder, and "" for a store in S3.
	Dir string
	// Bucket and Prefix of a store in S3.
	Bucket, Prefix string
}

// ParseURL parses file:///dir or s3://bucket/prefix. Its errors have a hint, and do not contain
// credentials.
func ParseURL(raw string) (Location, error) {
	hint := "use file:///absolute/dir or s3://bucket/prefix"
	u, err := url.Parse(raw)
	if err != nil {
		return Location{}, diag.WithHint(fmt.Errorf("invalid state store URL %q", raw), hint)
	}

	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return Location{}, diag.WithHint(
			fmt.Errorf("invalid state store URL of host %q: it contains credentials, a query or a fragment", u.Host),
			hint,
		)
	}

	switch {
	case u.Scheme == "file" && u.Host == "" && filepath.IsAbs(u.Path):
		return Location{Dir: filepath.Clean(u.Path)}, nil
	case u.Scheme == "s3" && regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`).MatchString(u.Host):
		return Location{Bucket: u.Host, Prefix: strings.Trim(u.Path, "/")}, nil
	}

	return Location{}, diag.WithHint(fmt.Errorf("invalid state store URL %q", raw), hint)
}

// Open returns the initialized store at rawURL and its sealer. If the key of a store in a folder is
// missing, Open succeeds and the sealer returns an error with a hint that explains how to pass the
// key, so that other objects remain readable. The error wraps ErrNotFound if no store exists at the
// URL.
func Open(ctx context.Context, rawURL string, opts Options) (Store, Sealer, error) {
	s, cfg, err := connectStore(ctx, rawURL, opts)
	if err != nil {
		return nil, nil, err
	}

	set, err := readSettings(ctx, s)
	if err != nil {
		return nil, nil, err
	}

	s3store, ok := s.(*S3Store)
	if !ok {
		return s, newFolderSealer(set, opts), nil
	}

	alias, err := s3store.findAlias(set.KMSKeyARN)
	if err != nil {
		return nil, nil, err
	}

	s3store.setSettings(set)

	return s, newStoreSealer(kms.NewFromConfig(cfg), set.KMSKeyARN, alias), nil
}

// findAlias returns the ARN of the alias of the store's key. It returns an error if the key of the
// settings belongs to another account than the bucket.
func (s *S3Store) findAlias(keyARN string) (string, error) {
	key, err := arn.Parse(keyARN)
	if err != nil || key.Service != "kms" || s.owner != "" && key.AccountID != s.owner {
		return "", diag.WithHint(
			fmt.Errorf("%s in %s names the key %q, which is no key of account %s", SettingsKey, s.URL(), keyARN, s.owner),
			"find out who changed the state store, and restore the earlier version of "+SettingsKey,
		)
	}

	key.Resource = keyAlias(s.bucket)

	return key.String(), nil
}

// newFolderSealer returns the sealer of a store in a folder.
func newFolderSealer(set Settings, opts Options) Sealer {
	identity, err := openIdentity(set, opts)
	if err != nil {
		return missingKeySealer{cause: err}
	}

	return NewAgeSealer(identity)
}

// CheckKey returns an error with a hint if the key of a store in a folder is missing, so that
// sealer can seal nothing. It makes no call: whether a key in KMS may be used turns out when it is.
func CheckKey(sealer Sealer) error {
	if missing, ok := sealer.(missingKeySealer); ok {
		return missing.cause
	}

	return nil
}

// connectStore returns the store at rawURL, which may not be initialized. The AWS configuration is
// zero for a store in a folder.
func connectStore(ctx context.Context, rawURL string, opts Options) (Store, aws.Config, error) {
	at, err := ParseURL(rawURL)
	if err != nil {
		return nil, aws.Config{}, err
	}

	if at.Dir != "" {
		return NewFileStore(at.Dir), aws.Config{}, nil
	}

	cfg, err := opts.AWS(ctx)
	if err != nil {
		return nil, aws.Config{}, fmt.Errorf("open %s: %w", rawURL, err)
	}

	owner, err := opts.findOwner(ctx, cfg)
	if err != nil {
		return nil, aws.Config{}, fmt.Errorf("open %s: %w", rawURL, err)
	}

	quiet := func(o *s3.Options) {
		o.DisableLogOutputChecksumValidationSkipped = true // it logs a line for each object without checksum
	}

	s := NewS3Store(s3.NewFromConfig(cfg, quiet, ExpectOwner(owner)), at.Bucket, at.Prefix)
	s.owner = owner

	return s, cfg, nil
}

// findOwner returns the account that must own the bucket; empty: any.
func (o Options) findOwner(ctx context.Context, cfg aws.Config) (string, error) {
	if o.Owner == nil {
		return "", nil
	}

	return o.Owner(ctx, cfg)
}

// readSettings returns the settings of a store. It returns an error if there are none, so that a
// mistyped URL does not create a second state.
func readSettings(ctx context.Context, s Store) (Settings, error) {
	o, err := s.Get(ctx, SettingsKey)
	if errors.Is(err, ErrNotFound) {
		return Settings{}, diag.WithHint(
			fmt.Errorf("there is no state store at %s: %w", s.URL(), ErrNotFound),
			"check the URL, or create it with: slipway state init --state "+s.URL(),
		)
	}

	if err != nil {
		return Settings{}, err
	}

	var set Settings
	if err := json.Unmarshal(o.Body, &set); err != nil {
		return Settings{}, fmt.Errorf("read %s in %s: %w", SettingsKey, s.URL(), err)
	}

	if set.Version != settingsVersion {
		return Settings{}, diag.WithHint(
			fmt.Errorf("%s in %s has unsupported version %d", SettingsKey, s.URL(), set.Version),
			"use a newer slipway",
		)
	}

	return set, nil
}

// openIdentity returns the private key of a store in a folder.
func openIdentity(set Settings, opts Options) (*age.X25519Identity, error) {
	hint := "set --state-key or SLIPWAY_STATE_KEY to the file that slipway state init created"
	if len(set.Identity) > 0 {
		hint = "set SLIPWAY_STATE_PASSPHRASE"
	}

	text, err := readIdentityText(set, opts)
	if err != nil {
		return nil, diag.WithHint(fmt.Errorf("the state store's key is needed: %w", err), hint)
	}

	defer clear(text)
	id, err := parseIdentity(text)
	if err != nil {
		return nil, diag.WithHint(err, hint)
	}

	if id.Recipient().String() != set.Recipient {
		return nil, diag.WithHint(errors.New("the key does not belong to the state store"), hint)
	}

	return id, nil
}

// readKeyFile reads a file with a private key. Only its owner may be able to read it.
func readKeyFile(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}

	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, diag.WithHint(
			fmt.Errorf("key file %s has mode %04o: others than its owner may read it", file, mode),
			"run: chmod 600 "+file,
		)
	}

	return os.ReadFile(file)
}

func readIdentityText(set Settings, opts Options) ([]byte, error) {
	if opts.KeyFile != "" {
		return readKeyFile(opts.KeyFile)
	}

	if len(set.Identity) == 0 {
		return nil, errors.New("no key file is set")
	}

	if opts.Passphrase == "" {
		return nil, errors.New("no passphrase is set")
	}

	with, err := age.NewScryptIdentity(opts.Passphrase)
	if err != nil {
		return nil, err
	}

	text, err := ageDecrypt(set.Identity, with)
	if err != nil {
		return nil, errors.New("wrong passphrase")
	}

	return text, nil
}

// parseIdentity parses the content of a key file. Its errors do not contain any of it.
func parseIdentity(text []byte) (*age.X25519Identity, error) {
	ids, err := age.ParseIdentities(bytes.NewReader(text))
	if err != nil || len(ids) != 1 {
		return nil, errors.New("the state store's key file must contain exactly one age identity")
	}

	id, ok := ids[0].(*age.X25519Identity)
	if !ok {
		return nil, errors.New("the state store's key is not an X25519 age identity")
	}

	return id, nil
}

// missingKeySealer is the sealer of a store whose key is missing.
type missingKeySealer struct{ cause error }

func (m missingKeySealer) Seal(context.Context, []byte, map[string]string) ([]byte, error) {
	return nil, m.cause
}

func (m missingKeySealer) Open(context.Context, []byte, map[string]string) ([]byte, error) {
	return nil, m.cause
}
