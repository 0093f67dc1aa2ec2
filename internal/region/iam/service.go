// SPDX-License-Identifier: Apache-2.0

// Package iam is the region's IAM: users, roles, instance profiles, policies and temporary credentials. It
// evaluates the policies of a caller for the other services, as a [wire.Authorizer], and issues the
// credentials of roles for STS and for instances. It does not know the other services, and it does not verify
// signatures.
package iam

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Config has the settings and dependencies of an [IAM]. All fields but Rand, Quotas and Trace are required.
type Config struct {
	Account     string           // 12 digits
	AccessKeyID string           // of the account's root
	SecretKey   string           // of AccessKeyID
	State       state.Backend    // keeps the state over a restart
	Now         func() time.Time // the region's clock
	Rand        io.Reader        // source of ids and secrets; nil means crypto/rand
	Quotas      Quotas           // limits of the account; the zero fields are set from DefaultQuotas
	// Trace is called with every request that policies decide, that is, of all callers but the root. nil for
	// none.
	Trace func(authz.Request, authz.Decision)
}

// IAM is the identity service of one account. Its methods may be called concurrently.
type IAM struct {
	cfg Config

	st    serviceState // guarded by the store's lock
	stale staleReads   // guarded by the store's lock
	store *state.Store
}

// serviceState is the saved state. Its methods need the store's lock.
type serviceState struct {
	Roles    map[string]*role            `json:"roles"`    // by name
	Users    map[string]*user            `json:"users"`    // by name
	Profiles map[string]*instanceProfile `json:"profiles"` // by name
	Policies map[string]*managedPolicy   `json:"policies"` // by ARN
	Sessions map[string]*roleSession     `json:"sessions"` // by access key ID
	// OIDCProviders are the OpenID Connect providers by URL without https://.
	OIDCProviders map[string]*oidcProvider `json:"oidcProviders,omitempty"`
}

// identity has the common fields of roles and users. Tags is replaced on each change, never modified.
type identity struct {
	Name     string            `json:"name"`
	ID       string            `json:"id"` // unique ID, such as AROA…
	Path     string            `json:"path"`
	Created  time.Time         `json:"created"`
	Tags     map[string]string `json:"tags,omitempty"`
	Inline   map[string]string `json:"inline,omitempty"`   // documents of the inline policies, by name
	Attached []string          `json:"attached,omitempty"` // ARNs of the attached policies, sorted
	Boundary string            `json:"boundary,omitempty"` // ARN of the permissions boundary
}

type role struct {
	identity
	Trust       string `json:"trust"` // document of the trust policy
	Description string `json:"description,omitempty"`
	MaxSession  int64  `json:"maxSession"` // seconds
}

type user struct {
	identity
	Keys map[string]*accessKey `json:"keys,omitempty"` // by access key ID
}

type accessKey struct {
	Secret  string    `json:"secret"`
	Active  bool      `json:"active"`
	Created time.Time `json:"created"`
}

// instanceProfile is an instance profile. Tags is replaced on each change, never modified.
type instanceProfile struct {
	Name    string            `json:"name"`
	ID      string            `json:"id"` // unique ID, such as AIPA…
	Path    string            `json:"path"`
	Created time.Time         `json:"created"`
	Tags    map[string]string `json:"tags,omitempty"`
	Role    string            `json:"role,omitempty"` // name of its role; empty for none
}

// roleSession is the session of an assumed role.
type roleSession struct {
	Role     string    `json:"role"`   // name of the role
	RoleID   string    `json:"roleId"` // unique ID of the role: a new role of the same name has no sessions
	Name     string    `json:"name"`   // session name
	Secret   string    `json:"secret"` // secret access key
	Token    string    `json:"token"`  // session token
	Expires  time.Time `json:"expires"`
	Policies []string  `json:"policies,omitempty"` // documents of the session policies
	// Tags are those of the session, without those of the role.
	Tags map[string]string `json:"tags,omitempty"`
}

// sessionLimits is what a session has besides the permissions of its role.
type sessionLimits struct {
	policies []string          // documents of session policies
	tags     map[string]string // of the session
}

// New returns the service with its saved state.
func New(cfg Config) (*IAM, error) {
	if cfg.Rand == nil {
		cfg.Rand = rand.Reader
	}

	cfg.Quotas = cfg.Quotas.WithDefaults()
	s := &IAM{cfg: cfg, st: serviceState{
		Roles:    map[string]*role{},
		Users:    map[string]*user{},
		Profiles: map[string]*instanceProfile{},
		Policies: map[string]*managedPolicy{},
		Sessions: map[string]*roleSession{},

		OIDCProviders: map[string]*oidcProvider{},
	}}
	s.store = &state.Store{Name: "iam", Backend: cfg.State, State: &s.st}
	if err := s.store.Load(); err != nil {
		return nil, err
	}

	return s, nil
}

// SaveTo saves the service's state to another backend, for a snapshot.
func (s *IAM) SaveTo(to state.Backend) error { return s.store.SaveTo(to) }

// newUniqueID returns a unique id of the given length, such as AROA….
func newUniqueID(random io.Reader, prefix string, length int) (string, error) {
	text, err := readRandom(random, length)
	if err != nil {
		return "", err
	}

	return prefix + base32.StdEncoding.EncodeToString(text)[:length-len(prefix)], nil
}

// newSecret returns n random characters of base64.
func newSecret(random io.Reader, n int) (string, error) {
	text, err := readRandom(random, n)
	if err != nil {
		return "", err
	}

	return base64.StdEncoding.EncodeToString(text)[:n], nil
}

func readRandom(random io.Reader, n int) ([]byte, error) {
	b := make([]byte, n)
	if _, err := io.ReadFull(random, b); err != nil {
		return nil, fmt.Errorf("read random bytes: %w", err)
	}

	return b, nil
}

// entityARN returns the ARN of an entity of this account. kind is role, user, instance-profile or policy.
func (s *IAM) entityARN(kind, path, name string) string {
	return "arn:aws:iam::" + s.cfg.Account + ":" + kind + path + name
}

func (r *role) roleARN(s *IAM) string { return s.entityARN("role", r.Path, r.Name) }
func (u *user) userARN(s *IAM) string { return s.entityARN("user", u.Path, u.Name) }
func (p *instanceProfile) profileARN(s *IAM) string {
	return s.entityARN("instance-profile", p.Path, p.Name)
}

// FindKey implements [wire.KeyStore].
func (s *IAM) FindKey(id string) (wire.AccessKey, bool) {
	if id == s.cfg.AccessKeyID {
		root := "arn:aws:iam::" + s.cfg.Account + ":root"
		return wire.AccessKey{
			Secret: s.cfg.SecretKey,
			Caller: wire.Caller{
				Account: s.cfg.Account,
				ARN:     root,
				UserID:  s.cfg.Account,
				Root:    true,
			},
		}, true
	}

	s.store.Lock()
	defer s.store.Unlock()
	if v, ok := s.st.Sessions[id]; ok {
		return wire.AccessKey{
			Secret:  v.Secret,
			Token:   v.Token,
			Expires: v.Expires,
			Caller: wire.Caller{
				Account: s.cfg.Account,
				ARN:     s.sessionARN(v),
				UserID:  v.RoleID + ":" + v.Name,
				Role:    v.Role,
				Session: v.Name,
			},
		}, true
	}

	for _, u := range s.st.Users {
		if k, ok := u.Keys[id]; ok && k.Active && !s.stale.consume(kindAccessKey, id) {
			return wire.AccessKey{
				Secret: k.Secret,
				Caller: wire.Caller{Account: s.cfg.Account, ARN: u.userARN(s), UserID: u.ID},
			}, true
		}
	}

	return wire.AccessKey{}, false
}

func (s *IAM) sessionARN(v *roleSession) string {
	return "arn:aws:sts::" + s.cfg.Account + ":assumed-role/" + v.Role + "/" + v.Name
}

// Credentials are temporary credentials of a role.
type Credentials struct {
	AccessKeyID     string
	SecretAccessKey string
	Token           string // session token
	Expiration      time.Time
}

// instanceSessionDuration is the lifetime of the credentials of an instance's role. EC2 issues new ones about
// every six hours.
const instanceSessionDuration = 6 * time.Hour

// IssueRoleCredentials returns new credentials of a role for an instance, whose id is the session name. It
// does not check that the role trusts EC2: that is checked when the instance is launched. It returns
// NoSuchEntity if the role does not exist.
func (s *IAM) IssueRoleCredentials(roleName, sessionName string) (Credentials, error) {
	c, _, err := s.issueCredentials(roleName, sessionName, instanceSessionDuration, sessionLimits{})
	return c, err
}

// issueCredentials adds a session of a role and returns its credentials and its caller.
func (s *IAM) issueCredentials(
	roleName, sessionName string,
	life time.Duration,
	limits sessionLimits,
) (Credentials, wire.Caller, error) {
	var c Credentials
	var who wire.Caller
	err := s.store.Update(func() (err error) {
		c, who, err = s.newSession(roleName, sessionName, life, limits)
		return err
	})

	return c, who, err
}

// newSession adds a session to the state and returns its credentials and its caller. The caller holds the
// store's lock.
func (s *IAM) newSession(
	roleName, sessionName string,
	life time.Duration,
	limits sessionLimits,
) (Credentials, wire.Caller, error) {
	r, err := s.st.findRole(roleName)
	if err != nil {
		return Credentials{}, wire.Caller{}, err
	}

	now := s.cfg.Now()

	for id, v := range s.st.Sessions {
		if now.After(v.Expires.Add(time.Hour)) { // until then, a request gets the error ExpiredToken
			delete(s.st.Sessions, id)
		}
	}

	v := &roleSession{
		Role:     r.Name,
		RoleID:   r.ID,
		Name:     sessionName,
		Policies: limits.policies,
		Tags:     limits.tags,
		Expires:  now.Add(life).UTC().Truncate(time.Second),
	}

	id, err := newUniqueID(s.cfg.Rand, "ASIA", 20)
	if err != nil {
		return Credentials{}, wire.Caller{}, err
	}

	if v.Secret, err = newSecret(s.cfg.Rand, 40); err != nil {
		return Credentials{}, wire.Caller{}, err
	}

	if v.Token, err = newSecret(s.cfg.Rand, 220); err != nil {
		return Credentials{}, wire.Caller{}, err
	}

	s.st.Sessions[id] = v
	who := wire.Caller{
		Account: s.cfg.Account,
		ARN:     s.sessionARN(v),
		UserID:  r.ID + ":" + v.Name,
		Role:    r.Name,
		Session: v.Name,
	}

	return Credentials{
		AccessKeyID:     id,
		SecretAccessKey: v.Secret,
		Token:           v.Token,
		Expiration:      v.Expires,
	}, who, nil
}

// InstanceProfileInfo describes an instance profile for the services that launch instances.
type InstanceProfileInfo struct {
	ARN     string
	ID      string // unique ID, such as AIPA…
	Role    string // name of the profile's role; empty for none
	RoleARN string // of the profile's role; empty for none
	Unseen  bool   // it is so new that other services do not see it; see SetVisibility
}

// InstanceProfile returns the instance profile with a name or an ARN. ok is false if there is none.
func (s *IAM) InstanceProfile(nameOrARN string) (InstanceProfileInfo, bool) {
	s.store.Lock()
	defer s.store.Unlock()
	name := nameOrARN
	if strings.HasPrefix(nameOrARN, "arn:") {
		name = nameOrARN[strings.LastIndex(nameOrARN, "/")+1:]
	}

	p, ok := s.st.Profiles[name]
	if !ok || name != nameOrARN && p.profileARN(s) != nameOrARN {
		return InstanceProfileInfo{}, false
	}

	info := InstanceProfileInfo{
		ARN:    p.profileARN(s),
		ID:     p.ID,
		Role:   p.Role,
		Unseen: s.stale.consume(kindProfile, p.Name) || s.stale.consume(kindRole, p.Role),
	}
	if r, ok := s.st.Roles[p.Role]; ok {
		info.RoleARN = r.roleARN(s)
	}

	return info, true
}

// RoleARN returns the ARN of a role for a service that is to assume it. ok is false if the role does not exist, or is not
// visible yet; see [SetVisibility].
func (s *IAM) RoleARN(name string) (string, bool) {
	arn, ok := findRoleARN(s, name)
	s.store.Lock()
	defer s.store.Unlock()
	if s.stale.consume(kindRole, name) {
		return "", false
	}

	return arn, ok
}

// findRoleARN returns the ARN of a role. ok is false if the role does not exist.
func findRoleARN(s *IAM, name string) (string, bool) {
	s.store.Lock()
	defer s.store.Unlock()
	r, ok := s.st.Roles[name]
	if !ok {
		return "", false
	}

	return r.roleARN(s), true
}
