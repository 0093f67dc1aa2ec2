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
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// SettingsKey is where a store keeps its own settings.
const SettingsKey = "slipway-state.json"

const settingsVersion = 1

// Settings of a store, made by Init. They hold no secret in the clear.
type Settings struct {
	// Version of the format.
	Version int `json:"version"`
	// KMSKeyARN seals secrets of a store on S3.
	KMSKeyARN string `json:"kmsKeyArn,omitempty"`
	// Recipient is the public age key that secrets of a store in a folder are sealed for.
	Recipient string `json:"recipient,omitempty"`
	// Identity is the recipient's private key, encrypted with the passphrase; empty if it is in a key file.
	Identity []byte `json:"identity,omitempty"`
}

// Options say how to reach a store and its keys.
type Options struct {
	// AWS returns the configuration for a store on S3. It is called only for one.
	AWS func(context.Context) (aws.Config, error)
	// KeyFile holds the age identity of a store in a folder.
	KeyFile string
	// Passphrase opens the identity that is kept in the store, if there is no key file.
	Passphrase string
}

// Location is a parsed store URL.
type Location struct {
	// Dir of a store in a folder, absolute; else "".
	Dir string
	// Bucket and Prefix of a store on S3.
	Bucket, Prefix string
}

// ParseURL understands file:///dir and s3://bucket/prefix.
func ParseURL(raw string) (Location, error) {
	hint := "use file:///absolute/dir or s3://bucket/prefix"
	u, err := url.Parse(raw)
	if err != nil {
		return Location{}, diag.WithHint(fmt.Errorf("state store %q is not a URL", raw), hint)
	}

	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return Location{}, diag.WithHint(
			fmt.Errorf("state store URL of host %q has more than a place in it", u.Host),
			hint,
		)
	}

	switch {
	case u.Scheme == "file" && u.Host == "" && filepath.IsAbs(u.Path):
		return Location{Dir: filepath.Clean(u.Path)}, nil
	case u.Scheme == "s3" && regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`).MatchString(u.Host):
		return Location{Bucket: u.Host, Prefix: strings.Trim(u.Path, "/")}, nil
	}

	return Location{}, diag.WithHint(fmt.Errorf("state store %q is of no known kind", raw), hint)
}

// Open opens the store at rawURL, which Init has made, and its sealer. Without the key of a store in a folder the sealer
// only fails, saying how to give the key; all that is not secret can be read.
func Open(ctx context.Context, rawURL string, opts Options) (Store, Sealer, error) {
	s, cfg, err := connectStore(ctx, rawURL, opts)
	if err != nil {
		return nil, nil, err
	}

	set, err := readSettings(ctx, s)
	if err != nil {
		return nil, nil, err
	}

	if s3store, ok := s.(*S3Store); ok {
		s3store.setSettings(set)
	}

	if set.KMSKeyARN != "" {
		return s, NewKMSSealer(kms.NewFromConfig(cfg), set.KMSKeyARN), nil
	}

	identity, err := openIdentity(set, opts)
	if err != nil {
		return s, missingKeySealer{
			err,
		}, nil //nolint:nilerr // public objects can be read without the key; sealing says err
	}

	return s, NewAgeSealer(identity), nil
}

// connectStore returns the store at rawURL, initialised or not.
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

	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.DisableLogOutputChecksumValidationSkipped = true // a line for each object that was put without checksum
	})

	return NewS3Store(client, at.Bucket, at.Prefix), cfg, nil
}

// readSettings reads the settings; a store without is refused, so that a mistyped URL makes no second state.
func readSettings(ctx context.Context, s Store) (Settings, error) {
	o, err := s.Get(ctx, SettingsKey)
	if errors.Is(err, ErrNotFound) {
		return Settings{}, diag.WithHint(
			fmt.Errorf("there is no state store at %s: %w", s.URL(), ErrNotFound),
			"check the URL, or make it with: slipway state init --state "+s.URL(),
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
			fmt.Errorf("%s in %s has version %d", SettingsKey, s.URL(), set.Version),
			"use a newer slipway",
		)
	}

	return set, nil
}

// openIdentity finds the private key of a store in a folder.
func openIdentity(set Settings, opts Options) (*age.X25519Identity, error) {
	hint := "give --state-key or SLIPWAY_STATE_KEY, the file that slipway state init made"
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
		return nil, diag.WithHint(errors.New("the key given is not the state store's"), hint)
	}

	return id, nil
}

func readIdentityText(set Settings, opts Options) ([]byte, error) {
	if opts.KeyFile != "" {
		return os.ReadFile(opts.KeyFile)
	}

	if len(set.Identity) == 0 {
		return nil, errors.New("no key file given")
	}

	if opts.Passphrase == "" {
		return nil, errors.New("no passphrase given")
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

// parseIdentity never quotes the text in its errors.
func parseIdentity(text []byte) (*age.X25519Identity, error) {
	ids, err := age.ParseIdentities(bytes.NewReader(text))
	if err != nil || len(ids) != 1 {
		return nil, errors.New("the state store's key file holds no single age identity")
	}

	id, ok := ids[0].(*age.X25519Identity)
	if !ok {
		return nil, errors.New("the state store's key is not an X25519 age identity")
	}

	return id, nil
}

// missingKeySealer stands for a sealer whose key we were not given.
type missingKeySealer struct{ err error }

func (l missingKeySealer) Seal(context.Context, []byte, map[string]string) ([]byte, error) {
	return nil, l.err
}

func (l missingKeySealer) Open(context.Context, []byte, map[string]string) ([]byte, error) {
	return nil, l.err
}
