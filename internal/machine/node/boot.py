#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# Installs the agent on a new machine: download it, check its SHA-256, install it, start it. Comment lines are stripped
# from user data, which is limited to 4 KiB. It uses only the standard library, because cloud-init's Python has no more.
import hmac,json,os,subprocess,time
import urllib.request as U
from hashlib import sha256 as S
C=json.loads(r'''@@CONFIG@@''')
E=os.environ.get
R=E('SLIPWAY_ROOT','')
def report(state,error='',hint=''):
 d={'time':time.strftime('%Y-%m-%dT%H:%M:%SZ',time.gmtime()),'stage':'boot','state':state,'error':error,'hint':hint}
 with open(R+'/dev/console','a') as f:print('slipway-node:',json.dumps({k:v for k,v in d.items() if v}),file=f)
# No proxy of the environment sees the role's credentials, and no redirect sends them elsewhere: it is an error.
U.getproxies=lambda:{}
U.HTTPRedirectHandler.redirect_request=lambda*a:None
def http(url,h={},m='GET'):
 return U.urlopen(U.Request(url,None,h,method=m),timeout=60).read()
def imds(path):
 b=E('AWS_EC2_METADATA_SERVICE_ENDPOINT','http://169.254.169.254').rstrip('/')+'/latest/'
 t=http(b+'api/token',{'X-aws-ec2-metadata-token-ttl-seconds':'300'},'PUT').decode()
 return http(b+'meta-data/'+path,{'X-aws-ec2-metadata-token':t}).decode()
def mac(k,s):return hmac.new(k,s.encode(),S).digest()
def s3(url):
 # A path-style GET, signed with Signature Version 4 and the credentials of the instance's role.
 p='iam/security-credentials/'
 c=json.loads(imds(p+imds(p).split()[0]))
 g=C['region']
 base=(E('AWS_ENDPOINT_URL_S3') or E('AWS_ENDPOINT_URL') or 'https://s3.'+g+'.@@DOMAIN@@').rstrip('/')
 path='/'+U.quote(url[5:])
 t=time.strftime('%Y%m%dT%H%M%SZ',time.gmtime())
 e=S(b'').hexdigest()
 h={'host':U.urlsplit(base).netloc,'x-amz-content-sha256':e,'x-amz-date':t,'x-amz-expected-bucket-owner':C['owner'],'x-amz-security-token':c['Token']}
 n=';'.join(h)
 r='\n'.join(['GET',path,'']+[k+':'+v for k,v in h.items()]+['',n,e])
 s=t[:8]+'/'+g+'/s3/aws4_request'
 A='AWS4-HMAC-SHA256'
 k=('AWS4'+c['SecretAccessKey']).encode()
 for x in s.split('/'):k=mac(k,x)
 sig=mac(k,'\n'.join([A,t,s,S(r.encode()).hexdigest()])).hex()
 h['Authorization']=A+' Credential='+c['AccessKeyId']+'/'+s+', SignedHeaders='+n+', Signature='+sig
 return http(base+path,h)
def put(path,data,mode):
 p=R+path
 os.makedirs(os.path.dirname(p),exist_ok=True)
 with open(p+'.new','wb') as f:f.write(data)
 os.chmod(p+'.new',mode)
 os.rename(p+'.new',p)
report('running')
u,want=C['agent']['url'],C['agent']['sha256']
w=1
while 1:
 try:
  b=s3(u)if u[:5]=='s3://'else http(u)
  break
 except Exception as x:
  # The permissions of a new IAM role take seconds to propagate, so retry, and report each failure.
  m=x.read()[:200].decode(errors='replace')if hasattr(x,'read')else''
  report('running','fetch '+u+': '+str(x)+' '+m,'will try again in %ds'%w)
  time.sleep(w)
  w=min(w*2,30)
got=S(b).hexdigest()
if got!=want:
 report('failed',u+': sha256 is '+got+', want '+want,'run slipway apply, then replace this machine')
 raise SystemExit(1)
put('/etc/slipway/boot.json',json.dumps(C).encode(),0o600)
put('/usr/local/bin/slipway-node',b,0o755)
put('/etc/systemd/system/slipway-node.service',b'''[Unit]
Description=Slipway agent
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0
[Service]
ExecStart=/usr/local/bin/slipway-node run --config /etc/slipway/boot.json
Restart=always
RestartSec=5
LimitCORE=0
MemorySwapMax=0
LockPersonality=1
RestrictRealtime=1
RestrictSUIDSGID=1
[Install]
WantedBy=multi-user.target
''',0o644)
# No reload, which takes 0.15 s of a processor: systemd reads a new unit when it starts it.
for a in 'enable --no-reload','start --no-block':subprocess.run(['systemctl',*a.split(),'slipway-node'],check=True)
report('done')
